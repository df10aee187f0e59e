import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from mone.data.crops import (
    central_crop,
    inception_box,
    inception_crop,
    pad_crop,
    resize,
    resize_short_side,
)

sides = st.integers(1, 600)


@given(sides, sides, st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_inception_box_has_permitted_area_and_aspect(width, height, seed):
    left, top, right, bottom = inception_box(width, height, np.random.default_rng(seed))
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    box = (right - left) * (bottom - top)
    assert box == width * height or 0.05 <= box / (width * height) <= 1
    if (left, top, right, bottom) != (0, 0, width, height):
        # Sides are rounded to pixels: half a pixel either way.
        assert (right - left - 0.5) / (bottom - top) <= 4 / 3
        assert (right - left + 0.5) / (bottom - top) >= 3 / 4


def test_inception_boxes_cover_the_range_of_areas():
    rng = np.random.default_rng(0)
    boxes = np.array([inception_box(500, 375, rng) for _ in range(4000)])
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / (500 * 375)
    assert areas.min() < 0.07
    assert areas.max() > 0.95
    # The centre of the boxes is the centre of the image.
    centre = (boxes[:, :2] + boxes[:, 2:]).mean(0) / 2
    np.testing.assert_allclose(centre, [250, 187.5], rtol=0.03)


def test_inception_crop_of_a_ramp_is_a_part_of_it():
    ramp = Image.fromarray(np.tile(np.arange(200, dtype=np.uint8), (150, 1)))
    out = np.asarray(inception_crop(ramp, 16, np.random.default_rng(1))).astype(int)
    assert out.shape == (16, 16)
    assert (np.diff(out, axis=1) >= 0).all()
    assert (out == out[0]).all()


def test_pad_crop_moves_by_an_eighth_at_most():
    image = Image.fromarray(np.full((16, 16), 9, np.uint8))
    rng = np.random.default_rng(0)
    shifts = set()
    for _ in range(300):
        out = np.asarray(pad_crop(image, rng))
        assert out.shape == (16, 16)
        filled = np.argwhere(out == 9)
        height, width = filled.max(0) - filled.min(0) + 1
        assert out.sum() == 9 * height * width
        shifts.add((16 - height, 16 - width))
    assert shifts == {(i, j) for i in range(3) for j in range(3)}


@given(sides, sides, st.integers(1, 64))
@settings(max_examples=100, deadline=None)
def test_short_side_and_central_crop(width, height, pixels):
    image = resize_short_side(Image.new("L", (width, height)), pixels)
    assert min(image.size) == pixels
    assert abs(max(image.size) - pixels * max(width, height) / min(width, height)) <= 0.5
    assert central_crop(image, pixels).size == (pixels, pixels)


def test_central_crop_is_central():
    pixels = np.arange(30, dtype=np.uint8).reshape(5, 6)
    out = np.asarray(central_crop(Image.fromarray(pixels), 2))
    np.testing.assert_array_equal(out, pixels[1:3, 2:4])


def test_resize_averages_when_it_shrinks():
    checks = (np.indices((16, 16)).sum(0) % 2 * 200).astype(np.uint8)
    out = np.asarray(resize(Image.fromarray(checks), 4, 4)).astype(float)
    assert np.abs(out - 100).max() < 15
