"""Optimiser and learning rate schedule from the configuration.

The rules are big_vision's (its `optax` module, used for the AugReg recipes): the update of a
parameter p is `-s(t) * (lr * direction + weight_decay * p)`, where s runs from 0 to 1 and back
and `direction` is Adam's, Muon's or the momentum. Weight decay is thus decoupled from the gradient
and from lr, and relative to the schedule: AdamW's usual decay, times lr.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import optax.contrib
from ml_collections import ConfigDict

from mone.errors import ConfigError

# Root mean square of Muon's updates, which lets it share Adam's learning rates (Liu et al. 2025,
# "Muon is scalable for LLM training", Sec. 2.2).
_MUON_RMS = 0.2

PyTree = Any
Schedule = Callable[[jax.Array], jax.Array]


def run_length(config: ConfigDict, steps_per_epoch: int) -> int:
    """Return the number of training steps that num_epochs or num_steps asks for, at least 1.

    Raises:
      ConfigError: If not exactly one of the two is positive.
    """
    epochs, steps = config.num_epochs, config.num_steps
    if (epochs > 0) == (steps > 0):
        raise ConfigError(
            "exactly one of num_epochs and num_steps must be positive, "
            f"got num_epochs={epochs} and num_steps={steps}"
        )
    return steps if steps > 0 else max(1, round(epochs * steps_per_epoch))


def warmup_length(config: ConfigDict, steps_per_epoch: int) -> int:
    """Return the steps of warm-up: optimizer.warmup_steps, or warmup_epochs where that is 0."""
    o = config.optimizer
    return o.warmup_steps if o.warmup_steps > 0 else round(o.warmup_epochs * steps_per_epoch)


def make_schedule(name: str, total_steps: int, warmup_steps: int = 0) -> Schedule:
    """Return s(t) in 0..1 for step t = 0, 1, ..., total_steps - 1.

    Args:
      name: "cosine" or "linear" (both fall to 0 at total_steps), or "constant".
      total_steps: Length of training.
      warmup_steps: s is multiplied by min(1, t / warmup_steps), so step 0 is then at 0.

    Raises:
      ConfigError: For another name, or a warm-up as long as training.
    """
    if warmup_steps and warmup_steps >= total_steps:
        raise ConfigError(
            f"optimizer.warmup_steps (or warmup_epochs) gives {warmup_steps} steps of warm-up, "
            f"but training has {total_steps}; it must be shorter"
        )
    shapes = {
        "cosine": lambda x: 0.5 * (1.0 + jnp.cos(jnp.pi * x)),
        "linear": lambda x: 1.0 - x,
        "constant": jnp.ones_like,
    }
    if name not in shapes:
        raise ConfigError(f"optimizer.schedule={name!r}: valid are {', '.join(sorted(shapes))}")

    def schedule(step: jax.Array) -> jax.Array:
        t = jnp.asarray(step, jnp.float32)
        progress = jnp.clip((t - warmup_steps) / (total_steps - warmup_steps), 0.0, 1.0)
        value = shapes[name](progress)
        return value * jnp.minimum(1.0, t / warmup_steps) if warmup_steps else value

    return schedule


def decay_mask(params: PyTree) -> PyTree:
    """Return which parameters are decayed: those named "kernel".

    These are the matrices of every projection, of the patch embedding, the router and the head.
    Not decayed: biases, LayerNorm scales, position embeddings, class and probe tokens, the
    router's alpha. The rule goes by name because stacked layers give biases two axes.
    """
    return jax.tree_util.tree_map_with_path(lambda path, _: _last_name(path) == "kernel", params)


def _last_name(path: tuple[Any, ...]) -> str:
    return str(getattr(path[-1], "key", path[-1])) if path else ""


def make_optimizer(
    config: ConfigDict,
    schedule: Schedule,
    trainable: PyTree | None = None,
) -> optax.GradientTransformation:
    """Return the gradient transformation that `config.optimizer` describes.

    Args:
      config: The whole configuration; reads `optimizer`.
      schedule: s(t) of `make_schedule`.
      trainable: Tree of bools like the parameters; False freezes a parameter: it is not updated,
        has no optimiser state and does not count in the norm that clips the others. None: all.

    Raises:
      ConfigError: If optimizer.name or optimizer.moment_dtype is unknown.
    """
    o = config.optimizer
    parts = [optax.clip_by_global_norm(o.clip_norm)] if o.clip_norm > 0 else []
    parts += [
        _direction(o),
        optax.scale(o.learning_rate),
        optax.add_decayed_weights(o.weight_decay, mask=decay_mask),
        optax.scale_by_schedule(schedule),
        optax.scale(-1.0),
    ]
    tx = optax.chain(*parts)
    if trainable is None:
        return tx
    labels = jax.tree.map(lambda t: "train" if t else "frozen", trainable)
    return optax.multi_transform({"train": tx, "frozen": optax.set_to_zero()}, labels)


def _direction(o: ConfigDict) -> optax.GradientTransformation:
    if o.moment_dtype not in ("float32", "bfloat16"):
        raise ConfigError(f"optimizer.moment_dtype={o.moment_dtype!r}: valid are bfloat16, float32")
    if o.name == "adamw":
        return optax.scale_by_adam(o.b1, o.b2, o.eps, mu_dtype=o.moment_dtype)
    if o.name == "muon":
        # A learning rate of -1 leaves scale and sign to the steps that follow.
        return optax.contrib.muon(
            learning_rate=-1.0,
            beta=o.momentum,
            mu_dtype=o.moment_dtype,
            consistent_rms=_MUON_RMS,
            muon_weight_dimension_numbers=_block_matrices,
            adam_b1=o.b1,
            adam_b2=o.b2,
        )
    if o.name == "sgd":
        return optax.trace(decay=o.momentum, accumulator_dtype=o.moment_dtype)
    raise ConfigError(f"optimizer.name={o.name!r}: valid are adamw, sgd, muon")


def _block_matrices(params: PyTree) -> PyTree:
    """Return what Muon updates: the projections in the blocks; None for the others.

    Embedding, router and head are matrices too, but not hidden layers: they get Adam's update,
    with Nesterov's momentum as Muon's has.
    Stacked blocks have a leading axis of layers, over which each matrix counts for itself.
    """

    def one(path: tuple[Any, ...], p: jax.Array) -> optax.contrib.MuonDimensionNumbers | None:
        names = [str(getattr(key, "key", key)) for key in path]
        if "blocks" not in names or names[-1] != "kernel":
            return None
        return optax.contrib.MuonDimensionNumbers(p.ndim - 2, p.ndim - 1)

    return jax.tree_util.tree_map_with_path(one, params)


def ema_update(ema: PyTree, params: PyTree, decay: float, step: jax.Array) -> PyTree:
    """Return the moving average after one more set of parameters.

    The decay starts low, min(decay, (1 + t) / (10 + t)) as in TensorFlow's
    ExponentialMovingAverage, so that a short run is not an average of its initial values.

    Args:
      ema: The average so far.
      params: Parameters after the update of this step.
      decay: Final decay, in 0..1.
      step: t, the number of this step from 0.
    """
    t = jnp.asarray(step, jnp.float32)
    d = jnp.minimum(decay, (1.0 + t) / (10.0 + t))
    return jax.tree.map(lambda e, p: d * e + (1.0 - d) * p, ema, params)
