import io

import numpy as np
import pytest
from PIL import Image

from mone.data.images import decode, normalise, to_array, to_mode
from mone.data.sources import UnreadableImageError


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "png")
    return buffer.getvalue()


def test_decode_gives_the_pixels():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    np.testing.assert_array_equal(np.asarray(decode(png(Image.fromarray(pixels)), "x")), pixels)


@pytest.mark.parametrize("cut", [0, 8, 40, 60])
def test_truncated_image_is_named(cut):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    with pytest.raises(UnreadableImageError, match=r"x\.png"):
        decode(png(Image.fromarray(pixels))[:cut], "x.png")


def test_half_transparent_is_laid_on_white():
    image = decode(png(Image.new("RGBA", (1, 1), (0, 100, 200, 51))), "x")
    # alpha = .2: 255 * .8 + colour * .2
    np.testing.assert_allclose(np.asarray(image)[0, 0], [204, 224, 244], atol=1)


def test_modes_between_grey_and_rgb():
    grey = np.arange(12, dtype=np.uint8).reshape(3, 4, 1)
    rgb = to_array(to_mode(grey, 3))
    np.testing.assert_array_equal(rgb, np.repeat(grey, 3, axis=-1))
    np.testing.assert_array_equal(to_array(to_mode(rgb, 1)), grey)
    assert to_mode(grey, 1) is grey


def test_sixteen_bits_a_pixel_are_scaled_not_clipped():
    deep = np.linspace(0, 65535, 12).astype(np.uint16).reshape(3, 4)
    image = decode(png(Image.fromarray(deep)), "x")
    np.testing.assert_array_equal(to_array(to_mode(image, 1))[..., 0], deep >> 8)
    np.testing.assert_array_equal(to_array(to_mode(image, 3))[..., 2], deep >> 8)


def test_normalise_against_float64():
    images = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, -1)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    out = normalise(images, mean, std)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, (images / 255 - mean) / std, rtol=0, atol=1e-6)
    assert normalise(images, (0.5,), (0.5,)).max() == pytest.approx(1.0, abs=1e-6)
