import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mone.data.sources import (
    UnreadableImageError,
    UnreadableImages,
    parse_split,
    read_or_next,
    slice_bounds,
    subset_indices,
)
from mone.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("train", (0, 200)),
        ("train[:90%]", (0, 180)),
        ("train[90%:]", (180, 200)),
        ("train[50:]", (50, 200)),
        ("train[50:70]", (50, 70)),
        ("train[:1000]", (0, 200)),
    ],
)
def test_split_slices(text, bounds):
    name, part = parse_split("data.train_split", text, ("train", "test"))
    assert name == "train"
    assert slice_bounds(part, 200) == bounds


@pytest.mark.parametrize("text", ["val", "train[", "train[90%]", "train[-5:]", ""])
def test_bad_split_names_field_and_choices(text):
    with pytest.raises(ConfigError, match=r"data\.eval_split=.*train, test"):
        parse_split("data.eval_split", text, ("train", "test"))


@given(st.integers(1, 300), st.data())
def test_subsets_are_nested_and_without_repeats(total, data):
    large = data.draw(st.integers(1, total))
    small = data.draw(st.integers(1, large))
    many, few = (subset_indices(total, count, 7) for count in (large, small))
    assert len(set(many.tolist())) == large
    assert set(few.tolist()) <= set(many.tolist())
    assert (np.diff(many) > 0).all()
    assert 0 <= many.min() <= many.max() < total


def test_subset_larger_than_the_split():
    with pytest.raises(ConfigError, match=r"data\.num_train=11.*10 images"):
        subset_indices(10, 11, 0)


def test_next_good_image_takes_the_place():
    def read(index):
        if index in (3, 4):
            raise UnreadableImageError(f"file{index}", "broken")
        return np.zeros((1, 1, 1)), index

    unreadable = UnreadableImages()
    labels = [read_or_next(read, i, 5, unreadable)[1] for i in range(5)]
    assert labels == [0, 1, 2, 0, 0]
    assert unreadable.names == ("file3", "file4")
