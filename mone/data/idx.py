"""MNIST-style IDX files, such as Fashion-MNIST's; plain or gzipped."""

import functools
import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from mone.data.sources import ArraySource, Classes
from mone.errors import DataError

# Where Debian's package dataset-fashion-mnist puts its files.
FASHION_MNIST_DIR = "/usr/share/datasets/fashion-mnist"
FASHION_MNIST_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
SPLITS = ("train", "test")
_PREFIX = {"train": "train", "test": "t10k"}
_HELP = (
    "Fashion-MNIST: install the Debian package dataset-fashion-mnist, or download the four files "
    "(https://github.com/zalandoresearch/fashion-mnist) into a folder and name it in data.path"
)


def read_idx(path: Path) -> np.ndarray:
    """Read one IDX file of unsigned bytes, gzipped if its name ends in .gz.

    Args:
        path: The file.

    Returns:
        uint8 array of the shape that the file states.

    Raises:
        DataError: if it is no IDX file of unsigned bytes, is damaged, or has another length.
    """
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    # Magic number: two zero bytes, 8 for unsigned bytes, the number of dimensions.
    if len(raw) < 4 or raw[:3] != b"\0\0\x08":
        raise DataError(f"{path} is no IDX file of unsigned bytes (first bytes: {raw[:4].hex()})")
    header = 4 + 4 * raw[3]
    shape = tuple(int.from_bytes(raw[i : i + 4], "big") for i in range(4, header, 4))
    if len(raw) - header != math.prod(shape):
        raise DataError(
            f"{path} is damaged: its header states the shape {shape}, "
            f"{max(0, len(raw) - header)} bytes follow"
        )
    return np.frombuffer(raw, np.uint8, offset=header).reshape(shape)


def _find(folder: Path, name: str) -> Path:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    raise DataError(f"IDX file {folder / name}(.gz) is missing. {_HELP}")


@functools.lru_cache(maxsize=4)
def _open(folder: str, split: str) -> ArraySource:
    prefix = _PREFIX[split]
    image_path = _find(Path(folder), f"{prefix}-images-idx3-ubyte")
    label_path = _find(Path(folder), f"{prefix}-labels-idx1-ubyte")
    images, labels = read_idx(image_path), read_idx(label_path)
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels) or not len(images):
        raise DataError(
            f"{image_path} has the shape {images.shape} and {label_path} {labels.shape}: "
            "expected n images and n labels"
        )
    fashion = Path(folder).name == Path(FASHION_MNIST_DIR).name and labels.max() < 10
    classes = Classes(
        num_classes=max(10, int(labels.max()) + 1),
        names=FASHION_MNIST_NAMES if fashion else None,
        image_shape=(*images.shape[1:], 1),
        source=f"IDX files in {folder}",
    )
    return ArraySource(images[..., None], labels, classes)


def open_idx(path: str, split: str) -> ArraySource:
    """Open a split of IDX files (kept in memory).

    Args:
        path: Folder that holds `train-images-idx3-ubyte` and its three companions, plain or .gz;
            "": Debian's Fashion-MNIST.
        split: "train" or "test" (files `t10k-*`).

    Raises:
        DataError: naming the file that is missing or damaged, and how to get it.
    """
    return _open(path or FASHION_MNIST_DIR, split)
