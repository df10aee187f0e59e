import pytest

from mone.configs.base import base

TINY = {
    "batch_size": 8,
    "num_steps": 6,
    "log_every": 1,
    "model.width": 8,
    "model.depth": 1,
    "model.num_heads": 2,
    "model.mlp_dim": 16,
    "model.patch_size": 14,
    "model.image_size": 28,
    "model.channels": 1,
    "model.num_classes": 10,
    "model.num_experts": 2,
    "model.scan": False,
    "budget.choices": (0.75, 1.0),
    "data.num_train": 20,
    "data.eval_split": "test[:30]",
    "eval.batch_size": 16,
    "eval.e_c": (1.0,),
    "checkpoint.every": 2,
}


@pytest.fixture(scope="session")
def tiny_config():
    """Return a function that makes a very small experiment, with flat overrides."""

    def make(**overrides):
        config = base()
        config.update_from_flattened_dict(TINY | overrides)
        return config

    return make
