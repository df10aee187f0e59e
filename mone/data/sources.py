"""What a data source is, parts of it, and how unreadable images are dealt with.

Axes: H W C image.
"""

import logging
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from PIL import Image

from mone.errors import ConfigError, DataError

Picture = np.ndarray | Image.Image  # An array is uint8 [H, W, C].

# So many unreadable images in a row are no longer bad files but a lost disk.
MAX_BAD_RUN = 100

_log = logging.getLogger("mone.data")


@dataclass(frozen=True)
class Classes:
    """What a source knows about its labels and images before reading any.

    Attributes:
        num_classes: Labels are 0 .. num_classes - 1.
        names: Name of each class, or None if the set has none.
        image_shape: (H, W, C) if all images have the same, else None.
        source: For humans: what the set is and where it was found.
    """

    num_classes: int
    names: tuple[str, ...] | None
    image_shape: tuple[int, int, int] | None
    source: str


class ImageSource(Protocol):
    """A split whose images can be read in any order, from several threads at once."""

    classes: Classes

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> tuple[Picture, int]:
        """Return image and label; raises UnreadableImageError if the image cannot be decoded."""
        ...


class UnreadableImageError(Exception):
    """One image cannot be decoded; `name` is its file or record."""

    def __init__(self, name: str, reason: object):
        super().__init__(f"{name}: {reason}")
        self.name = name


class UnreadableImages:
    """The images that could not be read so far, each reported once; safe with threads."""

    def __init__(self):
        self._lock = threading.Lock()
        self._names: dict[str, None] = {}

    def add(self, error: UnreadableImageError, consequence: str) -> None:
        """Note one, and say in a warning what was done about it."""
        with self._lock:
            if error.name in self._names:
                return
            self._names[error.name] = None
            count = len(self._names)
        _log.warning("cannot read image %s (%s; unreadable so far: %d)", error, consequence, count)

    @property
    def names(self) -> tuple[str, ...]:
        """Files or records, in the order in which they were met."""
        with self._lock:
            return tuple(self._names)


class ArraySource:
    """Images and labels held in memory.

    Args:
        images: uint8 [n, H, W, C].
        labels: int [n].
        classes: What the labels mean.
    """

    def __init__(self, images: np.ndarray, labels: np.ndarray, classes: Classes):
        self.classes = classes
        self._images = images
        self._labels = labels.astype(np.int32)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self._images[index], int(self._labels[index])

    def slice(self, start: int, stop: int) -> "ArraySource":
        """Return images start to stop, without a copy."""
        return ArraySource(self._images[start:stop], self._labels[start:stop], self.classes)


class Subset:
    """Some images of another source.

    Args:
        source: The source.
        indices: int [m], positions in it.
    """

    def __init__(self, source: ImageSource, indices: np.ndarray):
        self.classes = source.classes
        self._source = source
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> tuple[Picture, int]:
        return self._source[int(self._indices[index])]


def subset_indices(total: int, num_train: int, seed: int) -> np.ndarray:
    """Return the positions of a random subset, ascending.

    A larger subset of the same seed contains the smaller.

    Args:
        total: Images in the split.
        num_train: How many to draw; 0: all.
        seed: Seed of the draw.

    Returns:
        int64 [num_train or total].

    Raises:
        ConfigError: if the split has fewer.
    """
    if not 0 <= num_train <= total:
        raise ConfigError(
            f"data.num_train={num_train}: the training split has {total} images; "
            f"valid: 0 (all) to {total}"
        )
    if num_train == 0:
        return np.arange(total)
    return np.sort(np.random.default_rng(seed).permutation(total)[:num_train])


def read_or_next(
    read: Callable[[int], tuple[Picture, int]],
    index: int,
    count: int,
    unreadable: UnreadableImages,
) -> tuple[Picture, int]:
    """Read an image for training; in place of an unreadable one, the next good one after it.

    The replacement depends on the files alone, so that a resumed run sees the same.

    Args:
        read: From a number below `count` to image and label; raises UnreadableImageError.
        index: Number of the image.
        count: After the last image comes the first.
        unreadable: Where unreadable ones are noted.

    Raises:
        DataError: if a long run of images cannot be read.
    """
    error: UnreadableImageError | None = None
    for step in range(min(count, MAX_BAD_RUN)):
        try:
            return read((index + step) % count)
        except UnreadableImageError as bad:
            unreadable.add(bad, "another takes its place")
            error = bad
    raise DataError(f"{step + 1} images in a row cannot be read, the last is {error}")


_SPLIT = re.compile(r"([\w.-]+)(?:\[(?:(\d+)(%?))?:(?:(\d+)(%?))?\])?")


def parse_split(field: str, split: str, names: Sequence[str]) -> tuple[str, slice]:
    """Read a split such as `train`, `train[:90%]` or `train[3000:]`.

    Args:
        field: Configuration field it comes from, for the error.
        split: The text.
        names: Splits of the set.

    Returns:
        Name, and a slice whose bounds are absolute positions if int, shares of the split if float.

    Raises:
        ConfigError: if the split does not exist or the slice cannot be read.
    """
    match = _SPLIT.fullmatch(split)
    if not match or match[1] not in names:
        raise ConfigError(
            f"{field}={split!r}: valid: {', '.join(names)}, and slices such as "
            f"{names[0]}[:90%] or {names[0]}[1000:]"
        )
    low, high = (
        (int(number) / 100 if percent else int(number)) if number else None
        for number, percent in ((match[2], match[3]), (match[4], match[5]))
    )
    return match[1], slice(low, high)


def slice_bounds(part: slice, total: int) -> tuple[int, int]:
    """Turn a slice of `parse_split` into start and stop positions in 0..total."""

    def position(bound: int | float | None, default: int) -> int:
        if bound is None:
            return default
        return min(total, round(bound * total) if isinstance(bound, float) else bound)

    return position(part.start, 0), position(part.stop, total)
