"""Parameters and training memory of a configuration, without running it.

All of it comes from shapes. Parameters, gradients, optimiser state and moving average are exact.
The activations are an estimate: what JAX saves between the forward and the backward pass
(`jax.vjp`, evaluated abstractly), before XLA fuses. Beside the temporary memory that XLA:CPU
reports for the compiled gradient it is 6 to 16 % high with scanned blocks, 16 to 36 % with
rematerialised ones and 42 to 56 % with unrolled ones (embedded/vit, embedded/mone, ViT-Ti/16).

Axes: B images of a batch.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from mone.models import ViTConfig, functional, vit_config

# Batch size of the abstract evaluation: a prime that no size of a model is a multiple of, so
# that it tells the axes which grow with the batch.
_PROBE = 8191


@dataclasses.dataclass(frozen=True)
class Memory:
    """Training memory in bytes, over all devices together."""

    parameters: int
    gradients: int
    optimizer: int  # Moments and step counters.
    ema: int  # Averaged parameters; 0 without.
    activations: int  # Saved for the backward pass of one micro-batch: an estimate.

    @property
    def total(self) -> int:
        """All parts together."""
        return sum(dataclasses.astuple(self))

    def parts(self) -> dict[str, int]:
        """Return the parts as a dictionary."""
        return dataclasses.asdict(self)


def count_parameters(cfg: ViTConfig) -> int:
    """Return the number of parameters of a model; nothing is allocated."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(functional.abstract_params(cfg)))


def training_memory(
    config: ConfigDict, budgets: Sequence[Sequence[int] | None] = (None,)
) -> Memory:
    """Estimate the memory of a training step.

    Args:
      config: The experiment; `config.model`, `config.optimizer` and `config.batch_size` are used.
      budgets: Token counts of the forwards of one step, whose losses are summed before one
        backward pass; None: full width.

    Returns:
      Bytes by part, over all devices.
    """
    from mone.training.optimiser import make_optimizer, make_schedule

    cfg = vit_config(config.model)
    params = functional.abstract_params(cfg)
    count = count_parameters(cfg)
    o = config.optimizer
    # Any schedule and length: neither has a state that depends on it.
    state = jax.eval_shape(make_optimizer(config, make_schedule(o.schedule, 1)).init, params)
    images = config.batch_size // max(1, o.accum_steps)
    return Memory(
        parameters=4 * count,
        gradients=4 * count,
        optimizer=sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(state)),
        ema=4 * count if o.ema_decay > 0 else 0,
        activations=images * sum(activation_bytes(cfg, counts) for counts in budgets),
    )


def activation_bytes(cfg: ViTConfig, counts: Sequence[int] | None = None) -> int:
    """Return the bytes saved for the backward pass for each image of a batch.

    With rematerialised blocks they include what one block needs while it is recomputed.
    """
    counts = None if counts is None else tuple(counts)
    saved = _saved_bytes(cfg, counts)
    if cfg.remat == "none":
        return saved
    without = _saved_bytes(dataclasses.replace(cfg, remat="none"), counts)
    return saved + (without - saved) // cfg.depth


def _saved_bytes(cfg: ViTConfig, counts: tuple[int, ...] | None) -> int:
    def backward(params: Any, images: jax.Array) -> Any:
        def forward(params: Any) -> jax.Array:
            key = jax.random.key(0)
            return functional.apply(cfg, params, images, counts, key=key, train=True)[0]

        return jax.vjp(forward, params)[1]

    shape = (_PROBE, *cfg.image_size, cfg.channels)
    images = jax.ShapeDtypeStruct(shape, jnp.float32)
    saved = jax.eval_shape(backward, functional.abstract_params(cfg), images)
    # What does not grow with the batch is parameters, counted elsewhere.
    grows = [x for x in jax.tree.leaves(saved) if any(d and d % _PROBE == 0 for d in x.shape)]
    return sum(math.prod(x.shape) // _PROBE * x.dtype.itemsize for x in grows)
