"""Pictures between their file, PIL and arrays.

Axes: B batch, H W C image.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

from mone.data.sources import Picture, UnreadableImageError


def decode(data: bytes | Path, name: str) -> Image.Image:
    """Decode a JPEG, PNG or WebP image.

    Args:
        data: The file's bytes, or its path.
        name: What to call it in the error.

    Returns:
        The decoded image, in its own colour mode; transparent parts are laid on white.

    Raises:
        UnreadableImageError: if it is missing, truncated, or no image.
    """
    try:
        with Image.open(io.BytesIO(data) if isinstance(data, bytes) else data) as image:
            image.load()
            return _on_white(image) if image.has_transparency_data else image
    except Exception as error:  # Pillow's decoders raise many types for damaged files.
        if isinstance(error, MemoryError):
            raise
        raise UnreadableImageError(name, error) from error


def _on_white(image: Image.Image) -> Image.Image:
    image = image.convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image).convert("RGB")


def to_pil(image: Picture) -> Image.Image:
    """Return a PIL image of an array uint8 [H, W, 1 or 3], or the PIL image as it is."""
    if isinstance(image, Image.Image):
        return image
    return Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)


def to_mode(image: Picture, channels: int) -> Picture:
    """Return the picture with 1 (grey) or 3 (RGB) channels."""
    if isinstance(image, np.ndarray):
        if image.shape[-1] == channels:
            return image
        image = to_pil(image)
    if image.mode.startswith("I"):  # 16 bits a pixel; converting would clip at 255.
        image = Image.fromarray((np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype("u1"))
    mode = "L" if channels == 1 else "RGB"
    return image if image.mode == mode else image.convert(mode)


def to_array(image: Picture) -> UInt8[np.ndarray, "H W C"]:
    """Return a picture in mode L or RGB as an array [H, W, 1 or 3]."""
    if isinstance(image, np.ndarray):
        return image
    array = np.asarray(image)
    return array[..., None] if array.ndim == 2 else array


def normalise(
    images: UInt8[np.ndarray, "B H W C"], mean: Sequence[float], std: Sequence[float]
) -> Float32[np.ndarray, "B H W C"]:
    """Scale pixels from 0..255 to 0..1 and standardise: (x - mean) / std.

    Args:
        images: uint8 [B, H, W, C].
        mean: One value, or one a channel, on the scale 0..1.
        std: Likewise.

    Returns:
        float32 [B, H, W, C].
    """
    scale = 1.0 / (255.0 * np.asarray(std, np.float64))
    shift = -np.asarray(mean, np.float64) / np.asarray(std, np.float64)
    out = np.multiply(images, scale.astype(np.float32), dtype=np.float32)
    out += shift.astype(np.float32)
    return out
