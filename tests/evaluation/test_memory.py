import jax
import jax.numpy as jnp
import pytest

from mone.evaluation.memory import activation_bytes, count_parameters, training_memory
from mone.models import ViTConfig, budget_counts, decode_variant, functional, vit_config
from mone.training.optimiser import make_optimizer, make_schedule
from mone.training.state import new_state


def test_parameters_of_published_models():
    # ViT-S/16 and B/16 with 1000 classes, without CLS: timm's 22.05 M and 86.57 M, less a token.
    for variant, expected in (("S/16", 22_050_664 - 2 * 384), ("B/16", 86_567_656 - 2 * 768)):
        size, patch = decode_variant(variant)
        cfg = ViTConfig(**vars(size), patch_size=(patch, patch), image_size=(224, 224))
        assert count_parameters(cfg) == expected


@pytest.mark.parametrize("name", ["adamw", "muon", "sgd"])
@pytest.mark.parametrize("moment_dtype", ["float32", "bfloat16"])
def test_state_is_what_a_training_holds(tiny_experiment, name, moment_dtype):
    config = tiny_experiment(
        **{"optimizer.name": name, "optimizer.moment_dtype": moment_dtype,
           "optimizer.clip_norm": 1.0, "optimizer.ema_decay": 0.9}
    )  # fmt: skip
    params = functional.init(vit_config(config.model), 0)
    tx = make_optimizer(config, make_schedule("cosine", 10, 2))
    state = new_state(params, tx, ema=True)
    memory = training_memory(config)
    held = {"parameters": state.params, "optimizer": state.opt_state, "ema": state.ema}
    for part, arrays in held.items():
        assert memory.parts()[part] == sum(x.nbytes for x in jax.tree.leaves(arrays)), part


def test_moments_of_each_optimiser(tiny_experiment):
    def memory(**fields):
        return training_memory(tiny_experiment(**fields))

    count = count_parameters(vit_config(tiny_experiment().model))
    adam = memory()
    assert (adam.parameters, adam.gradients, adam.ema) == (4 * count, 4 * count, 0)
    counters = 16  # Bytes, at most.
    assert 0 <= adam.optimizer - 6 * count <= counters  # bfloat16 and float32.
    full = memory(**{"optimizer.moment_dtype": "float32"})
    assert 0 <= full.optimizer - 8 * count <= counters
    assert 0 <= memory(**{"optimizer.name": "sgd"}).optimizer - 2 * count <= counters
    assert memory(**{"optimizer.ema_decay": 0.9}).ema == 4 * count
    assert adam.total == sum(adam.parts().values())


def test_activations_grow_with_batch_budgets_and_shrink_with_accumulation(tiny_experiment):
    config = tiny_experiment()
    one = training_memory(config).activations
    narrow = budget_counts(vit_config(config.model), 0.4)
    narrow_only = training_memory(config, [narrow]).activations
    assert narrow_only < one
    assert training_memory(config, [None, narrow]).activations == one + narrow_only
    assert training_memory(tiny_experiment(batch_size=16)).activations == 2 * one
    halved = tiny_experiment(**{"optimizer.accum_steps": 2})
    assert training_memory(halved).activations == one // 2


@pytest.mark.parametrize("remat", ["none", "block"])
def test_activations_beside_xlas_temporary_memory(tiny_experiment, remat):
    """The estimate errs on the safe side, by less than half."""
    fields = {
        "model.width": 64, "model.num_heads": 4, "model.mlp_dim": 256, "model.patch_size": 4,
        "model.depth": 4, "model.remat": remat,
    }  # fmt: skip
    cfg = vit_config(tiny_experiment(**fields).model)

    def loss(params, images):
        return jnp.square(functional.apply(cfg, params, images, train=True)[0]).sum()

    images = jax.ShapeDtypeStruct((64, 28, 28, 1), jnp.float32)
    lowered = jax.jit(jax.grad(loss)).lower(functional.abstract_params(cfg), images)
    compiled = lowered.compile()
    measured = compiled.memory_analysis().temp_size_in_bytes
    assert 0.95 < 64 * activation_bytes(cfg) / measured < 1.5
