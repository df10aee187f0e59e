import pytest

from mone.data import dataset_info, eval_batches, train_batches
from mone.errors import ConfigError


def test_info_of_the_embedded_set(config):
    info = dataset_info(config.data)
    assert (info.num_train, info.num_eval, info.num_classes) == (4000, 1000, 10)
    assert info.image_shape == (28, 28, 1)
    assert info.class_names == tuple("0123456789")
    config.data.num_train = 500
    config.data.eval_split = "train[:10%]"
    info = dataset_info(config.data)
    assert (info.num_train, info.num_eval) == (500, 400)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("data.source", "web", r"data\.source='web'.*embedded, idx, folder, tfds"),
        ("data.train_split", "dev", r"data\.train_split='dev'.*train, test"),
        ("data.num_train", 4001, r"data\.num_train=4001"),
        ("model.num_classes", 9, r"model\.num_classes=9.*10 classes"),
        ("batch_size", 9, r"batch_size=9.*hosts, 2"),
        ("batch_size", 4002, r"batch_size=4002.*4000 training images"),
    ],
)
def test_bad_fields_are_named(config, field, value, message):
    *section, name = field.split(".")
    (config[section[0]] if section else config)[name] = value
    with pytest.raises(ConfigError, match=message):
        train_batches(config, process_count=2)


def test_unknown_split_argument(config):
    with pytest.raises(ConfigError, match="split='val'"):
        eval_batches(config, split="val")
