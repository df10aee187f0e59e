import numpy as np
import pytest
from PIL import Image

from mone.data.transforms import check_transforms, eval_transform, train_transform
from mone.errors import ConfigError


def digits(size: int = 28) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (size, size, 1), dtype=np.uint8)


def test_nothing_to_do_changes_nothing(config):
    image = digits()
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(train_transform(config)(image, rng), image)
    np.testing.assert_array_equal(eval_transform(config)(image), image)


def test_flip_is_a_mirror_half_of_the_time(config):
    config.data.flip = True
    image, apply = digits(), train_transform(config)
    rng = np.random.default_rng(0)
    mirrored = 0
    for _ in range(200):
        out = apply(image, rng)
        if (out == image[:, ::-1]).all():
            mirrored += 1
        else:
            np.testing.assert_array_equal(out, image)
    assert 70 < mirrored < 130


@pytest.mark.parametrize("crop", ["none", "pad", "inception"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("source", [digits(40), Image.new("RGB", (50, 30)), Image.new("L", (9, 9))])
def test_shape_and_dtype(config, crop, channels, source):
    config.data.crop, config.model.channels, config.data.augment = crop, channels, "strong2"
    out = train_transform(config)(source, np.random.default_rng(0))
    assert (out.shape, out.dtype) == ((28, 28, channels), np.uint8)
    config.data.eval_resize = 32
    out = eval_transform(config)(source)
    assert (out.shape, out.dtype) == ((28, 28, channels), np.uint8)


def test_eval_resize_then_central_crop(config):
    config.data.eval_resize, config.model.image_size = 32, 28
    image = digits(32)
    np.testing.assert_array_equal(eval_transform(config)(image), image[2:30, 2:30])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data.crop", "centre"),
        ("data.augment", "huge"),
        ("data.mean", (0.1, 0.2)),
        ("data.std", (0.0,)),
        ("data.eval_resize", 20),
        ("model.channels", 4),
    ],
)
def test_bad_fields_are_named(config, field, value):
    section, name = field.split(".")
    config[section][name] = value
    with pytest.raises(ConfigError, match=field):
        check_transforms(config)
