"""AugReg's augmentation presets: RandAugment and mixup by one name.

Source: Steiner et al., "How to train your ViT?" (2021), section 3.3 and its `big_vision` recipe.
"""

from dataclasses import dataclass

from ml_collections import ConfigDict

from mone.errors import ConfigError


@dataclass(frozen=True)
class Preset:
    """One preset: p of mixup's Beta(p, p); RandAugment's layers (0: none) and magnitude."""

    mixup_p: float = 0.0
    layers: int = 0
    magnitude: int = 0


PRESETS = {
    "none": Preset(),
    "light1": Preset(0.0, 2, 0),  # Magnitude 0 still inverts, equalises and so on.
    "light2": Preset(0.2, 2, 10),
    "medium1": Preset(0.2, 2, 15),
    "medium2": Preset(0.5, 2, 15),
    "strong1": Preset(0.5, 2, 20),
    "strong2": Preset(0.8, 2, 20),
}


def preset(data: ConfigDict) -> Preset:
    """Return the preset of `config.data` with its overrides applied.

    Raises:
        ConfigError: if data.augment is no preset.
    """
    if data.augment not in PRESETS:
        raise ConfigError(f"data.augment={data.augment!r}: valid: {', '.join(PRESETS)}")
    base = PRESETS[data.augment]
    return Preset(
        mixup_p=float(data.mixup) if data.mixup >= 0 else base.mixup_p,
        layers=data.randaug_layers or base.layers,
        magnitude=data.randaug_magnitude or base.magnitude,
    )


def mixup_p(data: ConfigDict) -> float:
    """Return p of mixup's Beta(p, p) draw, from data.mixup or else the preset; 0: no mixup."""
    return preset(data).mixup_p
