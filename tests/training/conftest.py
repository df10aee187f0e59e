import os

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

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


@pytest.fixture(scope="session", autouse=True)
def quick_compilation(tmp_path_factory):
    """Compile quickly, and equal programs once in these tests, child processes included."""
    settings = {
        "jax_disable_most_optimizations": True,
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("xla")),
        "jax_persistent_cache_min_compile_time_secs": 0.2,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {k: jax.config.values[k] for k in settings}
    for k, v in settings.items():
        jax.config.update(k, v)
    compilation_cache.reset_cache()  # Else it stays as it was when something first compiled.
    yield {k.upper(): str(v) for k, v in settings.items()}
    for k, v in before.items():
        jax.config.update(k, v)
    compilation_cache.reset_cache()


@pytest.fixture(scope="session")
def child_env(quick_compilation):
    """Environment of a child process on CPU."""
    return os.environ | quick_compilation | {"JAX_PLATFORMS": "cpu"}
