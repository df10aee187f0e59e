"""Every shipped experiment resolves, is valid, and takes a step with a tiny model."""

import dataclasses
import functools
import importlib
import re

import jax
import numpy as np
import pytest

from mone import config
from mone.configs import methods
from mone.configs.base import base
from mone.evaluation import count_macs
from mone.models import SIZES, functional, vit_config
from mone.training.budgets import BudgetSchedule
from mone.training.optimiser import make_optimizer, make_schedule
from mone.training.state import new_state
from mone.training.step import make_step

IMAGENET = [f"{group}/{m}" for group in ("imagenet1k", "imagenet21k") for m in
            ("vit", "matvit", "mone", "mod")]  # fmt: skip
VARIANTS = [
    *config.names(),
    *(f"{name}:{size}" for name in IMAGENET for size in ("S/32", "S/16", "B/16", "B/32", "L/16")),
    *(f"imagenet1k/{m}:S/16,recipe=plain" for m in ("vit", "matvit", "mone", "mod")),
    *(f"imagenet1k/{m}:L/16,init=/runs/21k" for m in ("vit", "matvit", "mone", "mod")),
    "imagenet1k/mone:Ti/16,e_c=0.57",
    "imagenet21k/mone:B/16,experts=3",
    "imagenet21k/matvit:B/16,experts=2",
    "imagenet21k/mod:B/16,every=1,e_c=0",
    "imagenet21k/mod:B/16,every=3",
    "fashion_mnist/mone:experts=3,e_c=0.5",
    "fashion_mnist/mod:every=1",
    "embedded/matvit:experts=2",
    "embedded/mone:experts=2",
    *(f"{c}/mone:recipe={r}" for c in ("embedded", "fashion_mnist") for r in methods.RECIPES),
]
# The experiment's own method, routing, pooling, regularisation, loss and optimiser; less of it.
TINY = [
    "model.variant=",
    "model.width=16",
    "model.depth=2",
    "model.num_heads=2",
    "model.num_experts=2",
    "model.mlp_dim=32",
    "model.patch_size=4",
    "model.image_size=16",
    "model.num_classes=11",
    "data.eval_resize=0",
    "batch_size=4",
]
FAST = {"xla_backend_optimization_level": 0}  # Compiles in less time than it saves here.


@pytest.mark.parametrize("name", VARIANTS)
def test_resolves_is_valid_and_survives_json(name):
    c = config.load(name)
    config.validate(c)
    assert c.name
    assert config.from_json(config.to_json(c)) == c


@pytest.mark.parametrize("name", IMAGENET)
@pytest.mark.parametrize("size", ["Ti", "S", "B", "L"])
def test_full_size_parameters_are_those_of_the_published_model(name, size):
    cfg = vit_config(config.load(f"{name}:{size}/16").model)
    params = functional.abstract_params(cfg)
    dense = functional.abstract_params(dataclasses.replace(cfg, method="dense", widths=()))
    count, of_dense = (sum(x.size for x in jax.tree.leaves(p)) for p in (params, dense))
    s, K, N = SIZES[size], cfg.num_classes, 196
    D, M = s.width, s.mlp_dim
    block = 4 * D * D + 4 * D + 2 * D * M + M + D + 4 * D
    assert of_dense == 768 * D + D + N * D + s.depth * block + 2 * D + D * K + K
    # Routers and their scales are all that a method adds: no second set of weights.
    assert 0 <= count - of_dense < 5 * D * s.depth


def test_augmentation_by_size_is_the_published_one():
    def augment(name):
        return config.load(name).data.augment

    by_size = ("Ti/16", "S/16", "B/16", "L/16")
    assert [augment(f"imagenet21k/mone:{s}") for s in by_size] == [
        "none", "light1", "light2", "medium2",
    ]  # fmt: skip
    assert [augment(f"imagenet1k/mone:{s}") for s in by_size] == [
        "light1", "medium2", "medium2", "medium2",
    ]  # fmt: skip
    assert augment("imagenet21k/vit:S/32") == "none"
    assert augment("imagenet1k/vit:S/32") == "medium1"


def test_imagenet21k_recipe():
    c = config.load("imagenet21k/mone:B/16")
    assert (c.batch_size, c.num_epochs, c.optimizer.warmup_steps) == (4096, 300, 10_000)
    assert (c.loss.name, c.model.head_bias, c.model.num_classes) == ("sigmoid", -10, 21_843)
    assert (c.model.dropout, c.model.drop_path) == (0, 0)
    o = c.optimizer
    assert (o.name, o.moment_dtype, o.schedule) == ("adamw", "bfloat16", "cosine")
    assert (o.learning_rate, o.weight_decay, o.clip_norm) == (1e-3, 1e-4, 1)
    assert c.budget.choices == (0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95)


def test_regularisation_on_imagenet1k_is_for_b_and_l():
    for size, rate in (("Ti/16", 0.0), ("S/16", 0.0), ("B/32", 0.1), ("B/16", 0.1), ("L/16", 0.1)):
        m = config.load(f"imagenet1k/vit:{size}").model
        assert (m.dropout, m.drop_path) == (rate, rate)


def test_mixture_of_depths_defaults_to_an_eighth_of_the_tokens_in_every_second_block():
    c = config.load("imagenet21k/mod:B/16")
    assert (c.model.mod_every, c.budget.adaptive) == (2, False)
    assert c.budget.e_c == c.eval.e_c[0] == (1 + 0.125) / 2


def test_options_keep_budgets_that_the_model_can_meet():
    c = config.load("fashion_mnist/mone:experts=2")
    assert (min(c.budget.choices), min(c.eval.e_c)) == (0.52, 0.5)
    c = config.load("fashion_mnist/mod:every=1")
    assert (min(c.budget.choices), min(c.eval.e_c)) == (0.15, 0.2)


@pytest.mark.parametrize("name", config.names())
def test_docstring_says_command_hardware_cost_and_what_to_expect(name):
    text = importlib.import_module(f"mone.configs.{name.replace('/', '.')}").__doc__
    for word in ("Hardware", "Cost", "Expect:", "Data:"):
        assert word.lower() in text.lower(), word
    commands = re.findall(r"mone train --config=(\S+) --workdir=DIR", text)
    assert commands
    for command in commands:
        assert command.split(":")[0] == name
        config.validate(config.load(command))


@pytest.mark.parametrize("name", IMAGENET)
def test_docstring_states_the_training_compute(name):
    text = importlib.import_module(f"mone.configs.{name.replace('/', '.')}").__doc__
    stated = re.search(r"Training, EFLOP \([^)]*300 epochs[^)]*\):\s(.*)\.", text)[1]
    images = 14_197_122 - 51_200 if "21k" in name else 0.99 * 1_281_167
    for item in stated.split(", "):
        size, exaflop = item.split()
        c = config.load(f"{name}:{size}")
        cfg = vit_config(c.model)
        draws = BudgetSchedule(c, cfg, 1).choices
        macs = sum(count_macs(cfg, b).total for step in draws for b in step) / len(draws)
        assert float(exaflop) == pytest.approx(3 * 2 * macs * images * 300 / 1e18, rel=5e-3)


@pytest.mark.parametrize(
    "name",
    [
        *config.names(),
        "imagenet1k/mone:B/16",
        "imagenet1k/mone:S/16,init=/runs/21k",
        "imagenet1k/mone:S/16,recipe=plain",
        *(f"fashion_mnist/mone:recipe={recipe}" for recipe in methods.RECIPES),
    ],
)
def test_takes_a_step_with_a_tiny_model(name):
    _takes_a_step(config.load(name, TINY))


@pytest.mark.parametrize("name", ["imagenet1k/matvit", "fashion_mnist/mone"])
def test_takes_a_step_nested_on_the_ffn_only(name):
    _takes_a_step(config.load(name, [*TINY, "model.nest=ffn"]))


def _takes_a_step(c):
    c.budget.choices, c.eval.e_c = (0.75,), (0.75,)
    config.validate(c)
    before, after, metrics = _one_step(config.to_json(_what_a_step_reads(c)))
    assert np.isfinite(metrics["loss"])
    assert metrics["grad_norm"] > 0
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(after))
    # All parameters move, but for what a router scaled by alpha = 0 cannot learn yet.
    moved = jax.tree_util.tree_map_with_path(
        lambda path, a, b: "router" in str(path) or np.any(a != np.asarray(b)), before, after
    )
    assert all(jax.tree.leaves(moved)), moved


def _what_a_step_reads(c):
    """Return a copy that is the same for experiments whose compiled steps are the same."""
    own = base()
    for section in ("model", "budget", "optimizer", "loss"):
        own[section].update(c[section])
    own.batch_size = c.batch_size
    own.model.head_bias = 0.0  # Read by the initialisation only.
    own.optimizer.learning_rate = 1e-3  # A constant: the program is the same.
    return own.lock()


@functools.cache
def _one_step(text):
    """Return parameters before and after a step, and its metrics."""
    c = config.from_json(text)
    cfg = vit_config(c.model)
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: rng.normal(0, 0.1, x.shape).astype(x.dtype), functional.abstract_params(cfg)
    )
    batch = {
        "image": rng.normal(size=(4, 16, 16, cfg.channels)).astype(np.float32),
        "label": np.arange(4, dtype=np.int32),
        "mixup": np.float32(0.7),
    }
    tx = make_optimizer(c, make_schedule("constant", 10, 0))
    step = make_step(c, cfg, tx, mixup=True)
    compiled = jax.jit(step, static_argnums=2, compiler_options=FAST)
    state, metrics = compiled(
        new_state(params, tx, ema=False), batch, BudgetSchedule(c, cfg, 10)(0)
    )
    return params, jax.device_get(state.params), jax.device_get(metrics)
