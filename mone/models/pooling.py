"""Attention pooling.

Axes: B batch, N tokens, D model width, H heads, P features of a head.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from mone.models.config import ViTConfig
from mone.nested.layers import NestedIn, NestedLayerNorm, NestedOut


class MapPooling(nnx.Module):
    """Multi-head attention pooling: a learned probe attends to all tokens (Zhai et al. 2022)."""

    def __init__(self, cfg: ViTConfig, *, rngs: nnx.Rngs):
        width, dtype = cfg.width, cfg.compute_dtype
        self.probe = nnx.Param(
            nnx.initializers.xavier_uniform()(rngs.params(), (1, 1, width), jnp.float32)
        )
        self.q = NestedIn(width, width, dtype=dtype, rngs=rngs)
        self.kv = NestedIn(width, width, parts=2, dtype=dtype, rngs=rngs)
        self.out = NestedOut(width, width, dtype=dtype, rngs=rngs)
        self.norm = NestedLayerNorm(width, dtype=dtype)
        self.fc1 = NestedIn(width, cfg.mlp_dim, dtype=dtype, rngs=rngs)
        self.fc2 = NestedOut(cfg.mlp_dim, width, dtype=dtype, rngs=rngs)
        self.num_heads = cfg.num_heads

    def __call__(self, x: Float[Array, "B N D"]) -> Float[Array, "B D"]:
        """Pool tokens; their order does not matter."""
        batch, _, width = x.shape
        (q,) = self.q((self.probe[...],))  # [1, 1, D]
        (kv,) = self.kv((x,))  # [B, N, 2D]
        q = q.reshape(self.num_heads, -1)  # [H, P]
        k, v = (p.reshape(batch, -1, *q.shape) for p in jnp.split(kv, 2, axis=-1))
        logits = jnp.einsum("hp,bnhp->bhn", q * q.shape[-1] ** -0.5, k)
        weights = jax.nn.softmax(logits.astype(jnp.float32), axis=-1).astype(v.dtype)
        pooled = jnp.einsum("bhn,bnhp->bhp", weights, v).reshape(batch, 1, width)
        (y,) = self.out((pooled,), (width,))
        (hidden,) = self.fc1(self.norm((y,), (None,)))
        (z,) = self.fc2((jax.nn.gelu(hidden, approximate=True),), (width,))
        return (y + z)[:, 0]
