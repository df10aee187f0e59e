"""Nested layers: each expert is a prefix of the same parameters.

Every layer takes and returns one array per expert (see `mone.nested.tokens`), so that a narrow
expert costs its width and nothing is masked or padded. Source: Jain et al., "Mixture of Nested
Experts", Sec. 3; LayerNorm's statistics run over the full width.

Axes: B batch, N tokens, D model width, E experts (ascending in width), n_j tokens and d_j
features of expert j, F output features.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from mone.nested.tokens import FrozenStats

Groups = tuple[Array, ...]


class NestedLayerNorm(nnx.Module):
    """LayerNorm over the full width, evaluated on an expert's live features only."""

    def __init__(self, width: int, *, eps: float = 1e-6, dtype: jnp.dtype = jnp.float32):
        self.scale = nnx.Param(jnp.ones((width,), jnp.float32))
        self.bias = nnx.Param(jnp.zeros((width,), jnp.float32))
        self.eps = eps
        self.dtype = dtype

    def __call__(self, live: Groups, stats: Sequence[FrozenStats | None]) -> Groups:
        """Normalise E arrays [B, n_j, d_j]; statistics are taken in float32."""
        return tuple(self._one(x, s) for x, s in zip(live, stats, strict=True))

    def _one(self, x: Float[Array, "B n d"], frozen: FrozenStats | None) -> Float[Array, "B n d"]:
        width = x.shape[-1]
        xf = x.astype(jnp.float32)
        mean, m2 = _mean_and_m2(xf)
        size = width
        if frozen is not None:
            mean, m2, size = _merge(mean, m2, width, frozen)
        y = (xf - mean) * jax.lax.rsqrt(m2 / size + self.eps)
        return (y * self.scale[:width] + self.bias[:width]).astype(self.dtype)


def _mean_and_m2(x: Float[Array, "B n d"]) -> tuple[Array, Array]:
    mean = x.mean(axis=-1, keepdims=True)
    return mean, jnp.square(x - mean).sum(axis=-1, keepdims=True)


def _merge(mean: Array, m2: Array, size: int, frozen: FrozenStats) -> tuple[Array, Array, int]:
    """Join the moments of two sets of features (Chan et al. 1979, the stable pairwise form)."""
    total = size + frozen.size
    gap = frozen.mean - mean
    mean = mean + gap * (frozen.size / total)
    return mean, m2 + frozen.m2 + jnp.square(gap) * (size * frozen.size / total), total


def affine(
    x: Float[Array, "B n F"], kernel: Float[Array, "F G"], bias: Float[Array, "G"]
) -> Float[Array, "B n G"]:
    """Return `x W + b`, as one product of matrices.

    With the rows flattened, XLA on CPU computes the gradient of `W` without first transposing
    the activations in memory, which took as long as the product.
    """
    y = x.reshape(-1, x.shape[-1]) @ kernel + bias
    return y.reshape(*x.shape[:-1], y.shape[-1])


class NestedIn(nnx.Module):
    """In-projection: `y_j = x_j W[:d_j, :F_j] + b[:F_j]`; contracts what is live of the input."""

    def __init__(
        self,
        width: int,
        features: int,
        *,
        parts: int = 1,
        dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        """Create the projection.

        Args:
          width: D, the full input width.
          features: Output features of one part.
          parts: Projections that share the input (Q, K and V), side by side in one kernel
            [D, parts * features] and initialised one by one.
          dtype: Compute dtype.
          rngs: Its `params` stream initialises.
        """
        init = nnx.initializers.xavier_uniform()
        kernels = jax.vmap(lambda key: init(key, (width, features), jnp.float32), out_axes=1)(
            jax.random.split(rngs.params(), parts)
        )  # [D, parts, F]
        self.kernel = nnx.Param(kernels.reshape(width, parts * features))
        self.bias = nnx.Param(jnp.zeros((parts * features,), jnp.float32))
        self.dtype = dtype

    def __call__(self, xs: Groups, features: Sequence[int] | None = None) -> Groups:
        """Project E arrays [B, n_j, d_j] to [B, n_j, F_j]; F_j is the full F by default."""
        features = features or (self.kernel.shape[-1],) * len(xs)
        return tuple(self._one(x, f) for x, f in zip(xs, features, strict=True))

    def _one(self, x: Float[Array, "B n d"], features: int) -> Float[Array, "B n F"]:
        kernel = self.kernel[: x.shape[-1], :features].astype(self.dtype)
        return affine(x.astype(self.dtype), kernel, self.bias[:features].astype(self.dtype))


class NestedOut(nnx.Module):
    """Out-projection: `y_j = x_j W[:F_j, :d_j] + b[:d_j]`; writes what is live of the output."""

    def __init__(
        self,
        features: int,
        width: int,
        *,
        dtype: jnp.dtype = jnp.float32,
        rngs: nnx.Rngs,
    ):
        init = nnx.initializers.xavier_uniform()
        self.kernel = nnx.Param(init(rngs.params(), (features, width), jnp.float32))
        self.bias = nnx.Param(jnp.zeros((width,), jnp.float32))
        self.dtype = dtype

    def __call__(self, xs: Groups, widths: Sequence[int]) -> Groups:
        """Project E arrays [B, n_j, F_j] to [B, n_j, d_j]."""
        return tuple(self._one(x, d) for x, d in zip(xs, widths, strict=True))

    def _one(self, x: Float[Array, "B n F"], width: int) -> Float[Array, "B n d"]:
        kernel = self.kernel[: x.shape[-1], :width].astype(self.dtype)
        return affine(x.astype(self.dtype), kernel, self.bias[:width].astype(self.dtype))
