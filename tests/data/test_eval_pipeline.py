import numpy as np
import pytest

from mone.data import eval_batches


@pytest.mark.parametrize("batch_size", [2, 4, 6, 10, 16])
@pytest.mark.parametrize("count", [1, 2])
def test_every_image_once_over_all_hosts(idx_config, numbers, batch_size, count):
    idx_config.eval.batch_size = batch_size
    hosts = [eval_batches(idx_config, process_index=i, process_count=count) for i in range(count)]
    assert {len(host) for host in hosts} == {-(-10 // batch_size)}
    seen = []
    for host in hosts:
        batches = list(host)
        assert len(batches) == len(host)
        for batch in batches:
            assert batch["image"].shape == (batch_size // count, 6, 6, 1)
            assert (batch["label"].dtype, batch["mask"].dtype) == (np.int32, np.float32)
        seen += numbers(*batches)
    assert sorted(seen) == list(range(10))


def test_more_hosts_than_images(idx_config):
    idx_config.eval.batch_size = 12
    hosts = [eval_batches(idx_config, process_index=i, process_count=12) for i in range(12)]
    assert sum(b["mask"].sum() for host in hosts for b in host) == 10


def test_iterated_again_after_a_break(idx_config, numbers):
    idx_config.eval.batch_size = 4
    batches = eval_batches(idx_config)
    for _ in batches:
        break
    first, second = list(batches), list(batches)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a["image"], b["image"])
    assert numbers(*first) == list(range(10))


def test_another_split(idx_config, numbers):
    batches = eval_batches(idx_config, split="train[10:25]")
    assert batches.num_examples == 15
    assert numbers(*batches) == list(range(10, 25))
