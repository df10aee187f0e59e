import itertools
import json
import subprocess
import sys

import numpy as np
import pytest

from mone.data import train_batches
from mone.errors import DataError


def take(config, count, **kwargs):
    batches = train_batches(config, **kwargs)
    out = list(itertools.islice(batches, count))
    batches.close()
    return out


@pytest.fixture
def augmented(idx_config):
    idx_config.data.crop, idx_config.data.flip = "pad", True
    idx_config.data.augment = "medium1"
    return idx_config


def test_batches_hold_the_images_and_their_labels(idx_config, numbers):
    batch = take(idx_config, 1)[0]
    assert (batch["image"].shape, batch["image"].dtype) == ((8, 6, 6, 1), np.float32)
    assert batch["label"].dtype == np.int32
    assert [i % 10 for i in numbers(batch)] == batch["label"].tolist()


def test_every_epoch_is_a_fresh_permutation(idx_config, numbers):
    idx_config.batch_size = 7  # 30 images: batches span two epochs.
    stream = numbers(*take(idx_config, 30))
    epochs = [stream[i : i + 30] for i in range(0, 210, 30)]
    assert all(sorted(epoch) == list(range(30)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 7


def test_seed_and_nothing_else_decides_the_order(augmented, assert_same):
    first = take(augmented, 9)
    for threads, prefetch in ((0, 4), (1, 1), (3, 4), (4, 2)):
        augmented.data.threads, augmented.data.prefetch = threads, prefetch
        assert_same(first, take(augmented, 9))
    augmented.seed = 1
    assert any(
        (a["image"] != b["image"]).any() for a, b in zip(first, take(augmented, 9), strict=True)
    )


def test_seeds_do_not_repeat_each_other_one_epoch_later(idx_config, numbers):
    idx_config.batch_size = 30
    orders = []
    for seed in range(3):
        idx_config.seed = seed
        orders += [tuple(numbers(batch)) for batch in take(idx_config, 4)]
    assert len(set(orders)) == 12


def test_augmentation_differs_between_epochs(idx_config):
    idx_config.batch_size = 30
    idx_config.data.crop = "pad"
    by_image = [{} for _ in range(20)]
    for epoch, batch in zip(by_image, take(idx_config, 20), strict=True):
        for label, image in zip(batch["label"], batch["image"], strict=True):
            epoch.setdefault(int(label), image.tobytes())
    assert len({epoch[0] for epoch in by_image}) > 10


@pytest.mark.parametrize("stop", [0, 1, 3, 4, 11])
@pytest.mark.parametrize("threads", [0, 2])
def test_resume_continues_bit_for_bit(augmented, assert_same, stop, threads):
    augmented.data.threads = threads
    reference = take(augmented, 16)
    batches = train_batches(augmented)
    list(itertools.islice(batches, stop))
    state = json.loads(json.dumps(batches.get_state()))
    batches.close()
    resumed = train_batches(augmented)
    next(resumed)
    resumed.set_state(state)
    assert resumed.get_state() == state
    assert_same(reference[stop:], list(itertools.islice(resumed, 16 - stop)))
    resumed.set_state(state)  # Back again, on the same iterator.
    assert_same(reference[stop:], list(itertools.islice(resumed, 16 - stop)))
    resumed.close()


@pytest.mark.parametrize("field", ["seed", "batch_size", "data.num_train"])
def test_state_of_another_order_is_refused(idx_config, field):
    batches = train_batches(idx_config)
    state = batches.get_state()
    batches.close()
    if field == "data.num_train":
        idx_config.data.num_train = 20
    else:
        idx_config[field] = 4
    other = train_batches(idx_config)
    with pytest.raises(DataError, match=field.split(".")[-1]):
        other.set_state(state)
    other.close()


@pytest.mark.parametrize("count", [2, 4])
def test_hosts_together_read_the_stream_of_one(augmented, count):
    whole = take(augmented, 12)
    shards = [take(augmented, 12, process_index=i, process_count=count) for i in range(count)]
    for batch, *parts in zip(whole, *shards, strict=True):
        for key in batch:
            for i, part in enumerate(parts):
                np.testing.assert_array_equal(batch[key][i::count], part[key])


def test_state_and_steps_are_the_same_on_every_host(idx_config):
    states, steps = [], []
    for i in range(2):
        batches = train_batches(idx_config, process_index=i, process_count=2)
        list(itertools.islice(batches, 5))
        states.append(batches.get_state())
        steps.append(batches.steps_per_epoch)
        batches.close()
    assert states[0] == states[1]
    assert steps == [3, 3]


def test_num_train_uses_a_fixed_subset(idx_config, numbers):
    idx_config.data.num_train, idx_config.batch_size = 12, 6
    first, second = (sorted(numbers(*take(idx_config, 2))) for _ in range(2))
    assert first == second
    assert len(set(first)) == 12
    idx_config.data.subset_seed = 1
    assert sorted(numbers(*take(idx_config, 2))) != first


def test_closed_iterator_says_so(idx_config):
    batches = train_batches(idx_config)
    batches.close()
    batches.close()
    with pytest.raises(ValueError, match="closed"):
        next(batches)


def test_a_program_that_just_ends_prints_nothing(idx_config):
    program = f"""
from mone.configs.base import base
from mone.data import eval_batches, train_batches
c = base()
c.model.image_size, c.model.channels, c.model.num_classes = 6, 1, 10
c.data.source, c.data.path, c.batch_size = "idx", {idx_config.data.path!r}, 8
train, evaluation = train_batches(c), iter(eval_batches(c))
next(train), next(evaluation)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
