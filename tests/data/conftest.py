"""Small data in the real formats."""

import gzip
import struct

import numpy as np
import pytest
from PIL import Image

from mone.configs.base import base


@pytest.fixture
def config():
    """The embedded digits, as they are, on one thread."""
    c = base()
    c.batch_size, c.eval.batch_size = 8, 16
    c.model.image_size, c.model.channels, c.model.num_classes = 28, 1, 10
    c.data.threads = 1
    return c


def idx_bytes(array: np.ndarray) -> bytes:
    header = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.fixture
def write_idx(tmp_path):
    """Return a function that writes IDX files and returns their folder and arrays."""

    def write(train: int = 30, test: int = 10, gz: bool = True, size: int = 6):
        rng = np.random.default_rng(0)
        arrays = {}
        for prefix, count in (("train", train), ("t10k", test)):
            images = rng.integers(0, 256, (count, size, size), dtype=np.uint8)
            images[:, 0, 0] = np.arange(count)  # An identity for each image.
            labels = np.arange(count) % 10
            arrays[prefix] = images, labels
            for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
                raw = idx_bytes(array)
                name = f"{prefix}-{kind}-ubyte" + (".gz" if gz else "")
                (tmp_path / name).write_bytes(gzip.compress(raw) if gz else raw)
        return tmp_path, arrays

    return write


@pytest.fixture
def idx_config(config, write_idx):
    """30 training and 10 test images of 6x6; pixel (0, 0) is the image's number."""
    folder, _ = write_idx()
    config.data.source, config.data.path = "idx", str(folder)
    config.model.image_size = 6
    return config


@pytest.fixture
def folder_config(config, tmp_path):
    """Two classes of RGB pictures; class `b` is bright; one file of `test` is truncated."""
    for split, per_class in (("train", 6), ("test", 3)):
        for label, name in enumerate(("a", "b")):
            directory = tmp_path / split / name
            directory.mkdir(parents=True)
            for i in range(per_class):
                suffix = ("jpg", "png", "webp")[i % 3]
                colour = (200 * label + 5 * i, 40, 10)
                Image.new("RGB", (20 + i, 16), colour).save(directory / f"{i}.{suffix}")
    good = (tmp_path / "test/b/0.jpg").read_bytes()
    (tmp_path / "test/b/broken.JPEG").write_bytes(good[: len(good) // 2])
    config.data.source, config.data.path = "folder", str(tmp_path)
    config.model.image_size, config.model.channels = 8, 3
    config.batch_size, config.eval.batch_size = 4, 4
    return config


@pytest.fixture
def numbers():
    """Return a function from batches to the numbers of their images, padding left out.

    An image's number is its first pixel.
    """

    def read(*batches) -> list[int]:
        found = []
        for batch in batches:
            pixels = np.rint((batch["image"][:, 0, 0, 0] * 0.5 + 0.5) * 255).astype(int)
            found += pixels[batch.get("mask", np.ones(len(pixels))) > 0].tolist()
        return found

    return read


@pytest.fixture
def assert_same():
    """Return a function that checks two lists of batches for equality, bit for bit."""

    def check(first, second):
        for a, b in zip(first, second, strict=True):
            assert a.keys() == b.keys()
            for key in a:
                np.testing.assert_array_equal(a[key], b[key])

    return check
