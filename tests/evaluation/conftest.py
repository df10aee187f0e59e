import jax
import numpy as np
import pytest

from mone.configs.base import base
from mone.models import functional, vit_config

TINY = {
    "name": "tiny",
    "batch_size": 8,
    "num_steps": 2,
    "model.width": 16,
    "model.depth": 2,
    "model.num_heads": 2,
    "model.mlp_dim": 32,
    "model.patch_size": 7,
    "model.image_size": 28,
    "model.channels": 1,
    "model.num_classes": 10,
    "model.num_experts": 3,
    "data.eval_split": "test[:20]",
    "eval.batch_size": 8,
    "eval.e_c": (0.4, 0.6, 1.0),
}


@pytest.fixture(scope="session")
def tiny_experiment():
    """Return a function that makes a very small experiment, with flat overrides."""

    def make(**overrides):
        config = base()
        config.update_from_flattened_dict(TINY | overrides)
        return config

    return make


@pytest.fixture(scope="session")
def lively_params():
    """Return a function that makes parameters with which images get different answers."""

    def make(config, seed=0):
        rng = np.random.default_rng(seed)
        shapes = functional.abstract_params(vit_config(config.model))
        return jax.tree.map(lambda x: rng.normal(0, 0.3, x.shape).astype(np.float32), shapes)

    return make
