import gzip

import numpy as np
import pytest

from mone.data.idx import FASHION_MNIST_DIR, open_idx, read_idx
from mone.errors import DataError


@pytest.mark.parametrize("gz", [True, False])
def test_idx_images_and_labels(write_idx, gz):
    folder, arrays = write_idx(gz=gz)
    for split, prefix in (("train", "train"), ("test", "t10k")):
        source = open_idx(str(folder), split)
        images, labels = arrays[prefix]
        assert len(source) == len(images)
        for i in range(len(images)):
            image, label = source[i]
            np.testing.assert_array_equal(image[..., 0], images[i])
            assert label == labels[i]


def test_missing_file_is_named_with_a_way_to_get_it(write_idx):
    folder, _ = write_idx()
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte.*dataset-fashion-mnist"):
        open_idx(str(folder), "test")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04 zip", "no IDX file"),
        (b"\0\0\x08\x01\0\0\0\x05abc", "damaged.*3 bytes follow"),
        (b"\0\0\x08\x03\0\0", "damaged"),
        (b"", "no IDX file"),
    ],
)
def test_damaged_idx(tmp_path, content, message):
    path = tmp_path / "x-ubyte"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_idx(path)


def test_truncated_gzip(tmp_path):
    path = tmp_path / "x-ubyte.gz"
    path.write_bytes(gzip.compress(b"\0\0\x08\x01\0\0\0\x05abcde")[:-6])
    with pytest.raises(DataError, match=r"cannot read .*x-ubyte\.gz"):
        read_idx(path)


def test_different_numbers_of_images_and_labels(write_idx):
    folder, _ = write_idx()
    labels = folder / "train-labels-idx1-ubyte.gz"
    labels.write_bytes((folder / "t10k-labels-idx1-ubyte.gz").read_bytes())
    with pytest.raises(DataError, match="expected n images and n labels"):
        open_idx(str(folder), "train")


@pytest.mark.debian
def test_fashion_mnist_of_debian():
    train, test = open_idx("", "train"), open_idx("", "test")
    assert (len(train), len(test)) == (60_000, 10_000)
    assert train.classes.names[0] == "T-shirt/top"
    assert FASHION_MNIST_DIR in train.classes.source
    labels = [train[i][1] for i in range(0, 60_000)]
    assert np.bincount(labels).tolist() == [6000] * 10
    # Mean and deviation that every Fashion-MNIST loader quotes.
    images = np.stack([train[i][0] for i in range(60_000)]) / 255
    assert images.mean() == pytest.approx(0.2860, abs=1e-4)
    assert images.std() == pytest.approx(0.3530, abs=1e-4)
