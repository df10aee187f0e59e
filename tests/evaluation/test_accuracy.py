import os
import socket
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest
from PIL import Image

from mone.data import eval_batches
from mone.errors import ConfigError, DataError
from mone.evaluation.accuracy import evaluate, example_losses
from mone.models import budget_counts, functional, vit_config


def batches_of(images, labels, size):
    """Cut into batches of one size; padding is filled with what would spoil every sum."""
    for start in range(0, len(labels), size):
        image, label = images[start : start + size], labels[start : start + size]
        short = size - len(label)
        yield {
            "image": np.concatenate([image, np.full((short, *image.shape[1:]), 1e3, np.float32)]),
            "label": np.concatenate([label, np.zeros(short, np.int32)]),
            "mask": np.concatenate([np.ones(len(label)), np.zeros(short)]).astype(np.float32),
        }


@pytest.fixture
def data():
    rng = np.random.default_rng(1)
    images = rng.normal(size=(21, 28, 28, 1)).astype(np.float32)
    return images, rng.integers(0, 10, 21).astype(np.int32)


@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
def test_equals_a_plain_computation_over_all_images(tiny_experiment, lively_params, data, loss):
    config = tiny_experiment(**{"loss.name": loss, "loss.label_smoothing": 0.1})
    params = lively_params(config)
    cfg = vit_config(config.model)
    counts = budget_counts(cfg, 0.5)
    found = evaluate(config, params, counts=counts, batches=list(batches_of(*data, 8)))

    images, labels = data
    run = jax.jit(lambda params, images: functional.apply(cfg, params, images, counts)[0])
    logits = np.asarray(run(params, images), np.float64)
    truth = np.eye(10)[labels]
    if loss == "softmax":
        losses = np.log(np.exp(logits).sum(1)) - (truth * logits).sum(1)
    else:
        losses = (np.log1p(np.exp(logits)) - truth * logits).sum(1)
    hits = int((logits.argmax(1) == labels).sum())
    assert 0 < hits < 21
    assert (found["num_examples"], found["unreadable"]) == (21, 0)
    assert found["accuracy"] == hits / 21
    assert found["loss"] == pytest.approx(losses.mean(), rel=1e-5)


def test_unreadable_images_do_not_count_and_are_counted(tiny_experiment, lively_params, tmp_path):
    for label, name in enumerate(("a", "b")):
        for split in ("train", "test"):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(4):
                picture = Image.new("L", (30, 28), 200 * label + 10 * i)
                picture.save(tmp_path / split / name / f"{i}.png")
    (tmp_path / "test/b/1.png").write_bytes(b"no image")
    fields = {"data.source": "folder", "data.path": str(tmp_path), "data.eval_split": "test"}
    config = tiny_experiment(**fields)
    batches = eval_batches(config)
    for _ in range(2):  # The second time it is known, and counts once again.
        score = evaluate(config, lively_params(config), counts=None, batches=batches)
        assert (score["num_examples"], score["unreadable"]) == (7, 1)


def test_batch_size_does_not_matter(tiny_experiment, lively_params, data):
    config = tiny_experiment()
    params = lively_params(config)
    scores = [
        evaluate(config, params, counts=None, batches=batches_of(*data, size)) for size in (4, 21)
    ]
    assert scores[0]["accuracy"] == scores[1]["accuracy"]
    assert scores[0]["loss"] == pytest.approx(scores[1]["loss"], rel=1e-6)


def test_random_router_depends_on_its_seed_only(tiny_experiment, lively_params, data):
    config = tiny_experiment()
    params = lively_params(config)
    counts = budget_counts(vit_config(config.model), 0.4)

    def loss(**how):
        batches = batches_of(*data, 8)
        return evaluate(config, params, counts=counts, batches=batches, **how)["loss"]

    assert loss(router="random", key_seed=1) == loss(router="random", key_seed=1)
    assert loss(router="random", key_seed=1) != loss(router="random", key_seed=2)
    assert loss(key_seed=1) == loss(key_seed=2)


def test_mistakes_are_named(tiny_experiment, lively_params):
    config = tiny_experiment()
    params = lively_params(config)
    with pytest.raises(ConfigError, match=r"router = 'best'.*'trained' and 'random'"):
        evaluate(config, params, counts=None, batches=[], router="best")
    with pytest.raises(DataError, match="no image"):
        evaluate(config, params, counts=None, batches=[])


def test_losses_stay_finite_for_extreme_logits():
    logits = np.array([[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0]], np.float32)
    labels = np.array([0, 0])
    for name, expected in (("softmax", [0, 2e4]), ("sigmoid", [np.log(2), 2e4 + np.log(2)])):
        assert np.allclose(example_losses(logits, labels, name), expected, rtol=1e-6)


HOST = """
    import sys
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    host, port = int(sys.argv[1]), sys.argv[2]
    jax.distributed.initialize(f"localhost:{port}", 2, host)
    from mone.configs.base import base
    from mone.evaluation.accuracy import evaluate
    from mone.models import functional, vit_config
    sys.path.insert(0, sys.argv[3])
    from conftest import TINY
    jax.config.update("jax_disable_most_optimizations", True)
    config = base()
    config.update_from_flattened_dict(TINY)
    rng = np.random.default_rng(0)
    cfg = vit_config(config.model)
    params = jax.tree.map(
        lambda x: rng.normal(0, .3, x.shape).astype(np.float32), functional.abstract_params(cfg))
    images = rng.normal(size=(13, 28, 28, 1)).astype(np.float32)
    labels = rng.integers(0, 10, 13).astype(np.int32)
    image, label = images[host::2], labels[host::2]
    pad = 7 - len(label)  # 7 does not divide by two devices either.
    batch = {
        "image": np.pad(image, [(0, pad), (0, 0), (0, 0), (0, 0)]),
        "label": np.pad(label, (0, pad)),
        "mask": np.pad(np.ones(len(label), np.float32), (0, pad)),
    }
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "fsdp"))
    def spread(x):
        split = x.ndim == 2 and x.shape[0] % 2 == 0
        sharding = NamedSharding(mesh, PartitionSpec("fsdp") if split else PartitionSpec())
        return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])
    for values in (params, jax.tree.map(spread, params)):
        score = evaluate(config, values, counts=None, batches=[batch])
        print("SCORE", score["accuracy"] * 13, f"{score['loss']:.4f}", score["num_examples"])
    logits = jax.jit(lambda p, x: functional.apply(cfg, p, x)[0])(params, images)
    losses = np.asarray(-jax.nn.log_softmax(logits)[np.arange(13), labels])
    hits = (np.asarray(logits).argmax(1) == labels).sum()
    print("SCORE", float(hits), f"{losses.mean():.4f}", 13)
"""


def test_two_hosts_with_and_without_a_mesh_score_the_whole_set_once():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
    }
    hosts = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(HOST), str(i), str(port),
             os.path.dirname(__file__)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for i in range(2)
    ]  # fmt: skip
    outputs = [host.communicate(timeout=120) for host in hosts]
    for output, errors in outputs:
        lines = [line for line in output.splitlines() if line.startswith("SCORE")]
        assert len(lines) == 3, errors[-2000:]
        assert len(set(lines)) == 1, lines
    assert jax.process_count() == 1
