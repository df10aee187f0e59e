"""One pre-LN transformer block on nested tokens.

`z = x + SA_j(LN(x))`, `x' = z + (alpha r[j] + 1) FFN_j(LN(z))` (Jain et al., "Mixture of Nested
Experts", Eq. 2); a dense ViT block is the case of one expert and no router.

Axes: B batch, N tokens, D model width, E experts (ascending in width), H heads, P features of a
head, n_j tokens, d_j features and h_j hidden features of expert j.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, PRNGKeyArray

from mone.models.attention import attention_product
from mone.models.config import ViTConfig
from mone.nested.layers import Groups, NestedIn, NestedLayerNorm, NestedOut
from mone.nested.tokens import NestedTokens, split_groups


class NestedAttention(nnx.Module):
    """Self-attention over the tokens of all experts: Q, K and V have full width."""

    def __init__(self, cfg: ViTConfig, *, rngs: nnx.Rngs):
        self.qkv = NestedIn(cfg.width, cfg.width, parts=3, dtype=cfg.compute_dtype, rngs=rngs)
        self.out = NestedOut(cfg.width, cfg.width, dtype=cfg.compute_dtype, rngs=rngs)
        self.num_heads = cfg.num_heads

    def __call__(self, xs: Groups) -> Groups:
        """Map E arrays [B, n_j, d_j] to the same shapes."""
        counts = [x.shape[1] for x in xs]
        qkv = jnp.concatenate(self.qkv(xs), axis=1)  # [B, N, 3D]
        batch, tokens, features = qkv.shape
        q, k, v = (
            part.reshape(batch, tokens, self.num_heads, -1)  # [B, N, H, P]
            for part in jnp.split(qkv, 3, axis=-1)
        )
        y = attention_product(q, k, v).reshape(batch, tokens, features // 3)
        return self.out(split_groups(y, counts), [x.shape[-1] for x in xs])


class NestedMLP(nnx.Module):
    """The FFN, nested on its outer width or on its hidden width."""

    def __init__(self, cfg: ViTConfig, *, rngs: nnx.Rngs):
        dtype = cfg.compute_dtype
        self.fc1 = NestedIn(cfg.width, cfg.mlp_dim, dtype=dtype, rngs=rngs)
        self.fc2 = NestedOut(cfg.mlp_dim, cfg.width, dtype=dtype, rngs=rngs)
        self.hidden_widths = cfg.hidden_widths
        self.dropout = cfg.dropout

    def __call__(self, xs: Groups, key: PRNGKeyArray | None = None) -> Groups:
        """Map E arrays [B, n_j, d_j] to the same shapes; `key` turns dropout on."""
        hidden = self.fc1(xs, self.hidden_widths[-len(xs) :])
        hidden = tuple(jax.nn.gelu(h, approximate=True) for h in hidden)
        hidden = drop_features(hidden, self.dropout, key)
        return self.fc2(hidden, [x.shape[-1] for x in xs])


class Block(nnx.Module):
    """A transformer block whose branches are nested."""

    def __init__(self, cfg: ViTConfig, *, rngs: nnx.Rngs):
        self.ln1 = NestedLayerNorm(cfg.width, dtype=cfg.compute_dtype)
        self.attn = NestedAttention(cfg, rngs=rngs)
        self.ln2 = NestedLayerNorm(cfg.width, dtype=cfg.compute_dtype)
        self.mlp = NestedMLP(cfg, rngs=rngs)
        if cfg.method == "mone" and cfg.router_scale:
            self.alpha = nnx.Param(jnp.zeros((), jnp.float32))
        self.dropout = cfg.dropout

    def __call__(
        self,
        live: Groups,
        tokens: NestedTokens,
        *,
        drop_path: Array | float = 0.0,
        key: PRNGKeyArray | None = None,
    ) -> Groups:
        """Update the live features.

        Args:
          live: E arrays [B, n_j, d_j].
          tokens: What else is known of the tokens: frozen statistics and router probabilities.
          drop_path: Probability to skip each branch, per image.
          key: Turns dropout and stochastic depth on.

        Returns:
          E arrays [B, n_j, d_j].
        """
        keys = (None,) * 5 if key is None else jax.random.split(key, 5)
        branch = drop_features(self.attn(self.ln1(live, tokens.stats)), self.dropout, keys[0])
        live = _add(live, _drop_branch(branch, drop_path, keys[1]))
        branch = self.mlp(self.ln2(live, tokens.stats), keys[2])
        branch = drop_features(branch, self.dropout, keys[3])
        branch = self._scale(branch, tokens.prob)
        return _add(live, _drop_branch(branch, drop_path, keys[4]))

    def _scale(self, branch: Groups, prob: tuple[Array, ...] | None) -> Groups:
        """Multiply by `alpha r[j] + 1`, computed in float32."""
        if prob is None or not hasattr(self, "alpha"):
            return branch
        alpha = self.alpha[...]
        return tuple(
            y * (alpha * r + 1.0).astype(y.dtype) for y, r in zip(branch, prob, strict=True)
        )


def _add(xs: Groups, ys: Groups) -> Groups:
    return tuple(x + y for x, y in zip(xs, ys, strict=True))


def drop_features(xs: Groups, rate: float, key: PRNGKeyArray | None) -> Groups:
    """Apply dropout to each array; `key` None turns it off."""
    if rate == 0.0 or key is None:
        return xs
    keys = jax.random.split(key, len(xs))
    kept = [jax.random.bernoulli(k, 1.0 - rate, x.shape) for k, x in zip(keys, xs, strict=True)]
    return tuple(
        jnp.where(m, x / (1.0 - rate), jnp.zeros((), x.dtype))
        for m, x in zip(kept, xs, strict=True)
    )


def _drop_branch(branch: Groups, rate: Array | float, key: PRNGKeyArray | None) -> Groups:
    """Stochastic depth (Huang et al. 2016): drop the branch of whole images."""
    if key is None:
        return branch
    kept = jax.random.bernoulli(key, 1.0 - rate, (branch[0].shape[0], 1, 1))
    scale = jnp.where(kept, 1.0 / (1.0 - rate), 0.0)
    return tuple(y * scale.astype(y.dtype) for y in branch)
