"""Sets built by TFDS itself, as array_record and as tfrecord. (Building needs TensorFlow.)"""

import itertools
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from mone.configs.base import base
from mone.data import dataset_info, eval_batches, train_batches
from mone.errors import ConfigError, DataError

TRAIN, TEST, BROKEN = 30, 10, 4
FORMATS = ("array_record", "tfrecord")


def examples(count: int, broken: int | None = None):
    """Images of one colour, their number; labels are the number modulo 3."""
    for i in range(count):
        image = np.full((6, 6, 3), i, np.uint8) if i != broken else b"no image"
        yield i, {"file_name": f"{i}.png", "image": image, "label": i % 3}


@pytest.fixture(scope="module")
def tfds_root(tmp_path_factory):
    """Build the set `tiny` in both formats, in three files a split; return their parent folder."""
    import tensorflow_datasets as tfds

    root = tmp_path_factory.mktemp("tfds")
    tfds.disable_progress_bar()
    features = tfds.features.FeaturesDict(
        {
            "file_name": tfds.features.Text(),
            "image": tfds.features.Image(shape=(6, 6, 3), encoding_format="png"),
            "label": tfds.features.ClassLabel(names=["cat", "dog", "emu"]),
        }
    )
    for file_format in FORMATS:
        builder = tfds.dataset_builders.AdhocBuilder(
            name="tiny",
            version="1.0.0",
            features=features,
            split_datasets={
                "train": list(examples(TRAIN)),
                "test": list(examples(TEST)),
                "damaged": list(examples(TEST, BROKEN)),
            },
            data_dir=root / file_format,
            file_format=file_format,
        )
        builder.download_and_prepare(
            download_config=tfds.download.DownloadConfig(num_shards=3), file_format=file_format
        )
    return root


def tiny_config(path):
    c = base()
    c.batch_size, c.eval.batch_size = 8, 4
    c.model.image_size, c.model.num_classes = 6, 3
    c.data.source, c.data.name = "tfds", "tiny"
    c.data.path = str(path)
    return c


@pytest.fixture(params=FORMATS)
def config(tfds_root, request):
    return tiny_config(tfds_root / request.param)


def take(config, count, **kwargs):
    batches = train_batches(config, **kwargs)
    out = list(itertools.islice(batches, count))
    batches.close()
    return out


def test_info_with_and_without_name(config):
    info = dataset_info(config.data)
    assert (info.num_train, info.num_eval, info.num_classes) == (TRAIN, TEST, 3)
    assert info.class_names == ("cat", "dog", "emu")
    assert info.image_shape == (6, 6, 3)
    config.data.path, config.data.name = f"{config.data.path}/tiny/1.0.0", ""
    assert dataset_info(config.data) == info


def test_epochs_are_fresh_permutations_with_their_labels(config, numbers):
    config.batch_size = 10
    batches = take(config, 9)
    for batch in batches:
        assert [i % 3 for i in numbers(batch)] == batch["label"].tolist()
    epochs = [numbers(*batches[i : i + 3]) for i in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(TRAIN)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 3


@pytest.mark.parametrize("stop", [0, 2, 5, 9])
def test_resume_continues_bit_for_bit(config, assert_same, stop):
    config.data.crop, config.data.flip, config.data.augment = "pad", True, "light2"
    reference = take(config, 11)
    config.data.threads, config.data.prefetch = 3, 1
    batches = train_batches(config)
    list(itertools.islice(batches, stop))
    state = json.loads(json.dumps(batches.get_state()))
    batches.close()
    resumed = train_batches(config)
    next(resumed)
    resumed.set_state(state)
    assert_same(reference[stop:], list(itertools.islice(resumed, 11 - stop)))
    resumed.close()
    config.data.threads = 0
    assert_same(reference, take(config, 11))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_hosts_share_an_epoch_and_an_evaluation(config, numbers, count):
    config.batch_size = 4
    steps = -(-TRAIN // 4) + 1
    shards = [take(config, steps, process_index=i, process_count=count) for i in range(count)]
    assert set(numbers(*itertools.chain(*shards))) == set(range(TRAIN))
    hosts = [eval_batches(config, process_index=i, process_count=count) for i in range(count)]
    assert {len(host) for host in hosts} == {3}
    seen = []
    for host in hosts:
        for batch in host:
            assert batch["image"].shape == (4 // count, 6, 6, 3)
            seen += numbers(batch)
    assert sorted(seen) == list(range(TEST))


def test_split_slices_are_disjoint(config, numbers):
    config.data.train_split = "train[:80%]"
    config.batch_size = 12
    train = set(numbers(*take(config, 2)))
    held_out = eval_batches(config, split="train[80%:]")
    rest = set(numbers(*held_out))
    assert (len(train), len(rest), held_out.num_examples) == (24, 6, 6)
    assert train | rest == set(range(TRAIN))


@pytest.mark.parametrize("count", [1, 2])
def test_num_train_uses_a_fixed_subset(config, numbers, count):
    config.data.num_train, config.batch_size = 12, 4
    epochs = [
        [numbers(*take(config, 3, process_index=i, process_count=count)) for i in range(count)]
        for _ in range(2)
    ]
    used = sorted(itertools.chain(*epochs[0]))
    assert len(set(used)) == 12
    assert epochs[0] == epochs[1]
    config.seed = 1
    other = [numbers(*take(config, 3, process_index=i, process_count=count)) for i in range(count)]
    assert sorted(itertools.chain(*other)) == used


def test_damaged_record_is_masked_or_replaced(config, numbers, caplog):
    batches = eval_batches(config, split="damaged")
    assert sum(batch["mask"].sum() for batch in batches) == TEST - 1
    assert len(batches.unreadable) == 1
    assert "tiny/1.0.0 damaged, record " in batches.unreadable[0]
    assert "cannot read image" in caplog.text
    config.data.train_split, config.batch_size = "damaged", 10
    seen = numbers(*take(config, 1))
    assert set(seen) == set(range(TEST)) - {BROKEN}


def test_missing_sets_and_splits_are_named(config, tmp_path):
    with pytest.raises(ConfigError, match=r"split='val'.*train"):
        eval_batches(config, split="val")
    config.data.name = "imagenet2012"
    with pytest.raises(DataError, match=r"imagenet2012.*tfds build"):
        dataset_info(config.data)
    config.data.name, config.data.path = "", str(tmp_path)
    with pytest.raises(DataError, match=r"set data\.name"):
        dataset_info(config.data)


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_damaged_tfrecord_file(tfds_root, damage, tmp_path):
    folder = shutil.copytree(tfds_root / "tfrecord/tiny/1.0.0", tmp_path / "tiny")
    file = folder / "tiny-train.tfrecord-00001-of-00003"
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(DataError, match="tfrecord files"):
        take(tiny_config(folder), 4)


PROGRAM = """
import sys
from mone.configs.base import base
from mone.data import eval_batches, train_batches
c = base()
c.model.image_size, c.model.num_classes, c.batch_size = 6, 3, 8
c.data.source, c.data.name, c.data.path = "tfds", "tiny", sys.argv[1]
train, evaluation = train_batches(c), iter(eval_batches(c))
next(train), next(evaluation)
print("tensorflow" in sys.modules)
"""


@pytest.mark.parametrize(("file_format", "loaded"), [("array_record", False), ("tfrecord", True)])
def test_reading_is_quiet_and_array_record_needs_no_tensorflow(tfds_root, file_format, loaded):
    command = [sys.executable, "-c", PROGRAM, str(tfds_root / file_format)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{loaded}\n", "")
