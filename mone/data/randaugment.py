"""RandAugment on PIL images, grey or RGB.

Cubuk et al., "RandAugment" (2019), with the operations and magnitudes of the `big_vision` code
that trained AugReg's models. Magnitude m is on a scale of 0..10 that may be exceeded; the
operations' strength goes linearly on. Empty pixels become mid-grey (128).
"""

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

_GREY = 128
# Translation and cutout are given in pixels of a 224-pixel image, and scaled to other sizes.
_REFERENCE_SIZE = 224


def randaugment(
    image: Image.Image, layers: int, magnitude: float, rng: np.random.Generator
) -> Image.Image:
    """Apply randomly chosen operations one after the other.

    Args:
        image: Image in mode L or RGB.
        layers: How many operations; each is drawn uniformly from `OPERATIONS`.
        magnitude: Their strength m.
        rng: Source of all draws.

    Returns:
        Image of the same size and mode.
    """
    names = list(OPERATIONS)
    for _ in range(layers):
        image = OPERATIONS[names[int(rng.integers(len(names)))]](image, magnitude / 10, rng)
    return image


def _fill(image: Image.Image) -> int | tuple[int, ...]:
    return _GREY if image.mode == "L" else (_GREY,) * 3


def _sign(value: float, rng: np.random.Generator) -> float:
    return value if rng.random() < 0.5 else -value


def _pixels(image: Image.Image, level: float, at_224: float) -> float:
    return level * at_224 * max(image.size) / _REFERENCE_SIZE


def _affine(image: Image.Image, *matrix: float) -> Image.Image:
    method = Image.Transform.AFFINE
    return image.transform(image.size, method, matrix, fillcolor=_fill(image))


def _enhance(kind: type) -> Callable:
    return lambda image, level, rng: kind(image).enhance(level * 1.8 + 0.1)


def _rotate(image, level, rng):
    return image.rotate(_sign(level * 30, rng), fillcolor=_fill(image))


def _posterize(image, level, rng):
    bits = min(8, int(level * 4))
    mask = 256 - 2 ** (8 - bits)  # ImageOps.posterize refuses 0 bits, which magnitude 0 means.
    return image.point([value & mask for value in range(256)] * len(image.getbands()))


def _solarize(image, level, rng):
    return ImageOps.solarize(image, threshold=int(level * 256))


def _solarize_add(image, level, rng):
    added = int(level * 110)
    table = [min(255, value + added) if value < 128 else value for value in range(256)]
    return image.point(table * len(image.getbands()))


def _shear_x(image, level, rng):
    return _affine(image, 1, _sign(level * 0.3, rng), 0, 0, 1, 0)


def _shear_y(image, level, rng):
    return _affine(image, 1, 0, 0, _sign(level * 0.3, rng), 1, 0)


def _translate_x(image, level, rng):
    return _affine(image, 1, 0, _sign(_pixels(image, level, 100), rng), 0, 1, 0)


def _translate_y(image, level, rng):
    return _affine(image, 1, 0, 0, 0, 1, _sign(_pixels(image, level, 100), rng))


def _cutout(image, level, rng):
    half = int(_pixels(image, level, 40))
    x, y = (int(rng.integers(side)) for side in image.size)
    image = image.copy()
    image.paste(_fill(image), (x - half, y - half, x + half, y + half))
    return image


Operation = Callable[[Image.Image, float, np.random.Generator], Image.Image]
OPERATIONS: dict[str, Operation] = {
    "auto_contrast": lambda image, level, rng: ImageOps.autocontrast(image),
    "equalize": lambda image, level, rng: ImageOps.equalize(image),
    "invert": lambda image, level, rng: ImageOps.invert(image),
    "rotate": _rotate,
    "posterize": _posterize,
    "solarize": _solarize,
    "color": _enhance(ImageEnhance.Color),
    "contrast": _enhance(ImageEnhance.Contrast),
    "brightness": _enhance(ImageEnhance.Brightness),
    "sharpness": _enhance(ImageEnhance.Sharpness),
    "shear_x": _shear_x,
    "shear_y": _shear_y,
    "translate_x": _translate_x,
    "translate_y": _translate_y,
    "cutout": _cutout,
    "solarize_add": _solarize_add,
}
