import pytest

from mone.data import mixup_p
from mone.data.presets import PRESETS, preset
from mone.errors import ConfigError


def test_presets_are_the_published_ones(config):
    # The table in the AugReg recipe: name, mixup p, RandAugment magnitude of 2 layers.
    published = [
        ("none", 0.0, None),
        ("light1", 0.0, 0),
        ("light2", 0.2, 10),
        ("medium1", 0.2, 15),
        ("medium2", 0.5, 15),
        ("strong1", 0.5, 20),
        ("strong2", 0.8, 20),
    ]
    assert list(PRESETS) == [name for name, _, _ in published]
    for name, p, magnitude in published:
        config.data.augment = name
        assert mixup_p(config.data) == p
        found = preset(config.data)
        assert (found.layers, found.magnitude) == ((0, 0) if magnitude is None else (2, magnitude))


def test_overrides(config):
    config.data.augment = "medium2"
    config.data.mixup = 0.0
    config.data.randaug_layers = 3
    config.data.randaug_magnitude = 7
    found = preset(config.data)
    assert (found.mixup_p, found.layers, found.magnitude) == (0.0, 3, 7)


def test_unknown_preset(config):
    config.data.augment = "light3"
    with pytest.raises(ConfigError, match=r"data\.augment='light3'.*light2"):
        mixup_p(config.data)
