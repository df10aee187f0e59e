"""The attention product, `softmax(Q K^T / sqrt(D_h)) V`; never reduced by nesting.

Axes: B batch, N tokens, D model width, H heads, P features of a head (D = H P).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def attention_product(
    q: Float[Array, "B N H P"], k: Float[Array, "B N H P"], v: Float[Array, "B N H P"]
) -> Float[Array, "B N H P"]:
    """Return the attention output of each head; the softmax is taken in float32.

    The scale is that of the head dimension, whatever the width of the expert. Which code runs is
    chosen when the program is lowered for a platform: on CPU einsums with heads before tokens,
    elsewhere `jax.nn.dot_product_attention` with the platform's own kernels.
    """
    return jax.lax.platform_dependent(
        q, k, v, cpu=_heads_first, default=jax.nn.dot_product_attention
    )


def _heads_first(q: Array, k: Array, v: Array) -> Array:
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))  # [B, H, N, P]
    q = q * q.shape[-1] ** -0.5
    logits = jnp.einsum("bhnp,bhmp->bhnm", q, k, preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(logits, axis=-1).astype(v.dtype)
    return jnp.swapaxes(jnp.einsum("bhnm,bhmp->bhnp", weights, v), 1, 2)
