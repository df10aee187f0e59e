"""Losses in float32: cross-entropies with soft targets, distillation, mixup.

Axes: B batch, K classes, H W C image.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from mone.errors import ConfigError

_STREAM = 0x313C  # Keeps mixup's draws apart from other uses of config.seed.

Loss = Callable[[Float[Array, "B K"], Float[Array, "B K"]], Float[Array, ""]]


def one_hot_targets(
    labels: Int[Array, "B"], num_classes: int, smoothing: float = 0.0
) -> Float[Array, "B K"]:
    """Return float32 targets: `1 - smoothing` on the label, plus `smoothing / K` on all."""
    targets = jax.nn.one_hot(labels, num_classes, dtype=jnp.float32)
    return optax.smooth_labels(targets, smoothing) if smoothing else targets


def softmax_loss(logits: Float[Array, "B K"], targets: Float[Array, "B K"]) -> Float[Array, ""]:
    """Return the softmax cross-entropy with soft targets, mean over B, in float32."""
    log_p = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    return -(targets * log_p).sum(-1).mean()


def sigmoid_loss(logits: Float[Array, "B K"], targets: Float[Array, "B K"]) -> Float[Array, ""]:
    """Return the sigmoid cross-entropy, sum over K, mean over B, in float32 (big_vision)."""
    x = logits.astype(jnp.float32)
    return (
        -(targets * jax.nn.log_sigmoid(x) + (1.0 - targets) * jax.nn.log_sigmoid(-x)).sum(-1).mean()
    )


_LOSSES: dict[str, tuple[Loss, Callable[[Array], Array]]] = {
    "softmax": (softmax_loss, jax.nn.softmax),
    "sigmoid": (sigmoid_loss, jax.nn.sigmoid),
}


def get_loss(name: str) -> Loss:
    """Return the loss that `config.loss.name` asks for.

    Raises:
      ConfigError: If there is no such loss.
    """
    return _lookup(name)[0]


def teacher_targets(name: str, logits: Float[Array, "B K"]) -> Float[Array, "B K"]:
    """Return the probabilities behind a teacher's logits as targets; no gradient flows back.

    With the loss of the same name they give the distillation loss of Hinton et al. 2015 at
    temperature 1: the divergence from the teacher plus its entropy, which has no gradient.
    """
    probs = _lookup(name)[1](logits.astype(jnp.float32))
    return jax.lax.stop_gradient(probs)


def _lookup(name: str) -> tuple[Loss, Callable[[Array], Array]]:
    if name not in _LOSSES:
        raise ConfigError(f"loss.name={name!r}: valid are {', '.join(sorted(_LOSSES))}")
    return _LOSSES[name]


def mixup_coefficient(seed: int, step: int, p: float) -> np.ndarray:
    """Draw a step's Beta(p, p) coefficient, folded to 0.5..1 (Zhang et al. 2018); p = 0 gives 1.

    On the host, because the sampler would add a second of compile time to each executable.

    Returns:
      float32 scalar, a function of (seed, step, p) alone.
    """
    if p == 0:
        return np.float32(1.0)
    a = np.random.default_rng([_STREAM, seed, step]).beta(p, p)
    return np.float32(max(a, 1.0 - a))


def mixup(
    images: Float[Array, "B H W C"], targets: Float[Array, "B K"], a: Float[Array, ""]
) -> tuple[Float[Array, "B H W C"], Float[Array, "B K"]]:
    """Mix each image and its targets with its neighbour's in the batch, `a x + (1 - a) x'`."""
    return tuple(a * x + (1.0 - a) * jnp.roll(x, 1, axis=0) for x in (images, targets))
