"""A folder of images: `root/split/class/*.jpg`, `.jpeg`, `.png` or `.webp`."""

import functools
import os
from pathlib import Path

import numpy as np
from PIL import Image

from mone.data.images import decode
from mone.data.sources import Classes
from mone.errors import DataError

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")


class FolderSource:
    """A split of an image folder, in a fixed random order.

    Args:
        files: Paths.
        labels: int32 [n], position of the image's folder among the sorted class folders.
        classes: What the labels mean.
    """

    def __init__(self, files: list[str], labels: np.ndarray, classes: Classes):
        self.classes = classes
        self._files = files
        self._labels = labels

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        path = self._files[index]
        return decode(Path(path), path), int(self._labels[index])

    def slice(self, start: int, stop: int) -> "FolderSource":
        """Return images start to stop."""
        return FolderSource(self._files[start:stop], self._labels[start:stop], self.classes)


def split_names(path: str) -> tuple[str, ...]:
    """Return the names of the folders in the root.

    Raises:
        DataError: if there is no root, or no folder in it.
    """
    if not path:
        raise DataError(
            "data.path is empty: for data.source='folder' it names the folder that holds "
            "split/class/image.jpg"
        )
    if not os.path.isdir(path):
        raise DataError(f"data.path={path!r}: there is no such folder")
    if names := _folders(path):
        return names
    raise DataError(f"data.path={path!r} has no folders in it: expected split/class/image.jpg")


@functools.lru_cache(maxsize=4)
def open_folder(path: str, split: str, train_split: str) -> FolderSource:
    """List the images of a split; opens none of them.

    Args:
        path: The root.
        split: Folder in the root.
        train_split: The folder whose class folders, sorted by name, give the labels their meaning.

    Raises:
        DataError: if a folder is missing or empty, or `split` has a class that training lacks.
    """
    names = _folders(os.path.join(path, train_split))
    if not names:
        raise DataError(f"{os.path.join(path, train_split)} has no class folders")
    root = os.path.join(path, split)
    if unknown := sorted(set(_folders(root)) - set(names)):
        raise DataError(
            f"{root} has class folders that {os.path.join(path, train_split)} lacks: "
            f"{', '.join(unknown[:5])}{' ...' if len(unknown) > 5 else ''}"
        )
    files, labels = [], []
    for label, name in enumerate(names):
        found = _images(os.path.join(root, name))
        files += found
        labels += [label] * len(found)
    if not files:
        raise DataError(f"{root} has no images (class/*{', *'.join(SUFFIXES)})")
    # Sorted by class, a slice of the split would lack classes.
    order = np.random.default_rng(0).permutation(len(files))
    classes = Classes(len(names), names, None, f"image folder {path}")
    return FolderSource([files[i] for i in order], np.int32(labels)[order], classes)


def _folders(path: str) -> tuple[str, ...]:
    if not os.path.isdir(path):
        return ()
    with os.scandir(path) as entries:
        return tuple(sorted(e.name for e in entries if e.is_dir() and e.name[0] != "."))


def _images(path: str) -> list[str]:
    if not os.path.isdir(path):
        return []
    with os.scandir(path) as entries:
        return sorted(e.path for e in entries if e.name.lower().endswith(SUFFIXES))
