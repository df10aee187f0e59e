import numpy as np
import pytest
from PIL import Image

from mone.data.randaugment import OPERATIONS, randaugment


def picture(mode: str, size: int = 32) -> Image.Image:
    shape = (size, size) if mode == "L" else (size, size, 3)
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))


class FixedSign:
    """A generator that always draws the positive sign."""

    def random(self) -> float:
        return 0.0


def test_the_operations_of_the_recipe():
    assert len(OPERATIONS) == 16


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("magnitude", [0, 10, 15, 20])
@pytest.mark.parametrize("name", list(OPERATIONS))
def test_every_operation_keeps_size_and_mode(name, magnitude, mode):
    image = picture(mode)
    before = np.asarray(image).copy()
    out = OPERATIONS[name](image, magnitude / 10, np.random.default_rng(0))
    assert (out.size, out.mode) == (image.size, mode)
    np.testing.assert_array_equal(np.asarray(image), before)


@pytest.mark.parametrize(
    ("name", "magnitude", "expected"),
    [
        ("invert", 10, lambda x: 255 - x),
        ("posterize", 0, lambda x: 0 * x),
        ("posterize", 10, lambda x: x // 16 * 16),
        ("posterize", 15, lambda x: x // 4 * 4),
        ("posterize", 20, lambda x: x),
        ("solarize", 0, lambda x: 255 - x),
        ("solarize", 5, lambda x: np.where(x < 128, x, 255 - x)),
        ("solarize", 20, lambda x: x),
        ("solarize_add", 10, lambda x: np.where(x < 128, np.minimum(x + 110, 255), x)),
        ("brightness", 5, lambda x: x),
        ("brightness", 0, lambda x: (x * 0.1).astype(int)),
        ("brightness", 10, lambda x: np.minimum((x * 1.9), 255).astype(int)),
        ("contrast", 5, lambda x: x),
        ("color", 5, lambda x: x),
        ("sharpness", 5, lambda x: x),
    ],
)
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_point_operations_against_their_formula(name, magnitude, expected, mode):
    image = picture(mode)
    out = np.asarray(OPERATIONS[name](image, magnitude / 10, FixedSign())).astype(int)
    pixels = np.asarray(image).astype(int)
    tolerance = 1 if name == "brightness" else 0
    np.testing.assert_allclose(out, expected(pixels), rtol=0, atol=tolerance)


@pytest.mark.parametrize(("name", "axis"), [("translate_x", 1), ("translate_y", 0)])
def test_translation_scales_with_the_image(name, axis):
    for size, pixels in ((224, 100), (112, 50)):
        image = picture("L", size)
        out = np.asarray(OPERATIONS[name](image, 1.0, FixedSign()))
        moved = np.roll(np.asarray(image), -pixels, axis)
        cut = [slice(None), slice(None)]
        cut[axis] = slice(0, size - pixels)
        np.testing.assert_array_equal(out[tuple(cut)], moved[tuple(cut)])
        cut[axis] = slice(size - pixels, None)
        assert (out[tuple(cut)] == 128).all()


def test_shear_moves_rows_in_proportion():
    image = picture("L", 100)
    out = np.asarray(OPERATIONS["shear_x"](image, 1.0, FixedSign()))
    pixels = np.asarray(image)
    for row in (0, 10, 50, 90):
        shift = int(0.3 * (row + 0.5) + 0.5)
        np.testing.assert_array_equal(out[row, : 100 - shift], pixels[row, shift:])


def test_rotation_by_ninety_degrees():
    image = picture("RGB")
    out = OPERATIONS["rotate"](image, 3.0, FixedSign())
    np.testing.assert_array_equal(np.asarray(out), np.rot90(np.asarray(image)))


def test_cutout_greys_a_square():
    image = Image.new("RGB", (224, 224))
    out = np.asarray(OPERATIONS["cutout"](image, 1.0, np.random.default_rng(3)))
    grey = np.argwhere(out[..., 0] == 128)
    height, width = grey.max(0) - grey.min(0) + 1
    assert len(grey) == height * width
    assert max(height, width) == 80


def test_randaugment_depends_on_the_generator_alone():
    image = picture("RGB")
    runs = [np.asarray(randaugment(image, 2, 10, np.random.default_rng(s))) for s in (0, 0, 1)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0] != runs[2]).any()
    assert randaugment(image, 0, 10, np.random.default_rng(0)) is image
