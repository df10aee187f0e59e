"""What happens to one image between its source and the batch.

Axes: H W C image.
"""

from collections.abc import Callable

import numpy as np
from ml_collections import ConfigDict
from PIL import Image

from mone.data import crops
from mone.data.images import to_array, to_mode, to_pil
from mone.data.presets import preset
from mone.data.randaugment import randaugment
from mone.data.sources import Picture
from mone.errors import ConfigError

TrainTransform = Callable[[Picture, np.random.Generator], np.ndarray]
EvalTransform = Callable[[Picture], np.ndarray]

CROPS = ("none", "inception", "pad")


def check_transforms(config: ConfigDict) -> None:
    """Check the fields that the transforms use.

    Raises:
        ConfigError: naming the field.
    """
    data, model = config.data, config.model
    if model.channels not in (1, 3):
        raise ConfigError(f"model.channels={model.channels}: valid: 1 (grey) or 3 (RGB)")
    if data.crop not in CROPS:
        raise ConfigError(f"data.crop={data.crop!r}: valid: {', '.join(CROPS)}")
    if data.eval_resize and data.eval_resize < model.image_size:
        raise ConfigError(
            f"data.eval_resize={data.eval_resize}: valid: 0, or at least "
            f"model.image_size={model.image_size}"
        )
    for field in ("mean", "std"):
        if len(data[field]) not in (1, model.channels):
            raise ConfigError(
                f"data.{field}={tuple(data[field])}: valid: one value, or one for each of "
                f"model.channels={model.channels}"
            )
    if min(data.std) <= 0:
        raise ConfigError(f"data.std={tuple(data.std)}: valid: positive values")
    preset(data)


def train_transform(config: ConfigDict) -> TrainTransform:
    """Return the augmentation of the training images: crop, flip, RandAugment, in this order.

    Args:
        config: Fields data.* and model.image_size, model.channels.

    Returns:
        A function of an image and the generator of all its draws; it returns
        uint8 [image_size, image_size, channels].
    """
    size, channels = config.model.image_size, config.model.channels
    crop, flip, augment = config.data.crop, config.data.flip, preset(config.data)
    untouched = crop == "none" and not flip and not augment.layers

    def apply(image: Picture, rng: np.random.Generator) -> np.ndarray:
        image = to_mode(image, channels)
        if untouched and image_size(image) == (size, size):
            return to_array(image)  # Small sets in memory: nothing to do, so no round trip to PIL.
        image = to_pil(image)
        if crop == "inception":
            image = crops.inception_crop(image, size, rng)
        else:
            image = crops.resize(image, size, size)
        if crop == "pad":
            image = crops.pad_crop(image, rng)
        if flip and rng.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return to_array(randaugment(image, augment.layers, augment.magnitude, rng))

    return apply


def eval_transform(config: ConfigDict) -> EvalTransform:
    """Return the evaluation transform: resize the short side, central crop.

    Args:
        config: Fields data.eval_resize and model.image_size, model.channels.

    Returns:
        A function of an image; it returns uint8 [image_size, image_size, channels].
    """
    size, channels = config.model.image_size, config.model.channels
    resized = config.data.eval_resize or size

    def apply(image: Picture) -> np.ndarray:
        image = to_mode(image, channels)
        if resized == size and image_size(image) == (size, size):
            return to_array(image)
        image = crops.resize_short_side(to_pil(image), resized)
        return to_array(crops.central_crop(image, size))

    return apply


def image_size(image: Picture) -> tuple[int, int]:
    """Return width and height in pixels."""
    return image.size if isinstance(image, Image.Image) else (image.shape[1], image.shape[0])
