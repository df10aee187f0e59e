"""Resizing and cropping of PIL images."""

import numpy as np
from PIL import Image

_ATTEMPTS = 100


def resize(image: Image.Image, width: int, height: int) -> Image.Image:
    """Resize, bilinear with antialiasing; an image of that size already comes back as it is."""
    if image.size == (width, height):
        return image
    return image.resize((width, height), Image.Resampling.BILINEAR)


def resize_short_side(image: Image.Image, pixels: int) -> Image.Image:
    """Resize so that the short side has that many pixels, keeping the aspect ratio."""
    short = min(image.size)
    width, height = (max(pixels, round(side * pixels / short)) for side in image.size)
    return resize(image, width, height)


def central_crop(image: Image.Image, pixels: int) -> Image.Image:
    """Cut the central square of that many pixels."""
    left, top = ((side - pixels) // 2 for side in image.size)
    if (left, top) == (0, 0) and image.size == (pixels, pixels):
        return image
    return image.crop((left, top, left + pixels, top + pixels))


def pad_crop(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Pad a square image with black by 1/8 of its size on each side and cut out a random square."""
    size = image.size[0]
    pad = max(1, size // 8)
    left, top = rng.integers(-pad, pad + 1, size=2).tolist()
    return image.crop((left, top, left + size, top + size))


def inception_crop(image: Image.Image, pixels: int, rng: np.random.Generator) -> Image.Image:
    """Cut a random part, 5-100 % of the area, aspect ratio 3/4 to 4/3, and resize it to a square.

    Szegedy et al., "Going deeper with convolutions" (2015), section 6.
    """
    box = inception_box(*image.size, rng)
    return image.resize((pixels, pixels), Image.Resampling.BILINEAR, box=box)


def inception_box(width: int, height: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Draw the box of an Inception crop.

    Drawn as `tf.image.sample_distorted_bounding_box` does, which the AugReg recipe uses: the
    aspect ratio uniformly, then the box's height uniformly among those of a permitted area.

    Returns:
        Left, top, right, bottom in pixels; the whole image if no box fits.
    """
    area = width * height
    for _ in range(_ATTEMPTS):
        aspect = rng.uniform(3 / 4, 4 / 3)
        low = round((0.05 * area / aspect) ** 0.5)
        high = min(round((area / aspect) ** 0.5), height, int((width + 0.5) / aspect))
        crop_height = int(rng.integers(low, high + 1)) if low < high else high
        crop_width = round(crop_height * aspect)
        fits = 0 < crop_width <= width and 0 < crop_height <= height
        if fits and 0.05 * area <= crop_width * crop_height <= area:
            left = int(rng.integers(width - crop_width + 1))
            top = int(rng.integers(height - crop_height + 1))
            return left, top, left + crop_width, top + crop_height
    return 0, 0, width, height
