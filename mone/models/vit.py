"""One vision transformer for every method: dense, MatViT, MoNE and Mixture-of-Depths.

The compute of a forward pass is set by static token counts, one per expert
(`mone.models.budgets`). Every call returns its intermediates beside its output; what is not used
costs nothing under jit.

Axes: B batch, H W C image, N tokens, D model width, E experts (ascending in width), K classes.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray

from mone.errors import ConfigError
from mone.models.budgets import full_counts
from mone.models.config import ROUTERS, ViTConfig
from mone.models.embedding import PatchEmbedding
from mone.models.mixture_of_depths import DepthTrunk
from mone.models.pooling import MapPooling
from mone.models.trunk import NestedTrunk, widest_in_use
from mone.nested.layers import NestedLayerNorm
from mone.nested.tokens import NestedTokens


class ViT(nnx.Module):
    """Vision transformer (Dosovitskiy et al. 2021) on nested experts (Jain et al. 2024)."""

    def __init__(self, cfg: ViTConfig, *, rngs: nnx.Rngs):
        self.cfg = cfg
        self.embed = PatchEmbedding(cfg, rngs=rngs)
        if cfg.pool == "cls":
            self.cls = nnx.Param(jnp.zeros((1, 1, cfg.width), jnp.float32))
        trunk = DepthTrunk if cfg.method == "mod" else NestedTrunk
        self.trunk = trunk(cfg, rngs=rngs)
        self.norm = NestedLayerNorm(cfg.width, dtype=cfg.compute_dtype)
        if cfg.pool == "map":
            self.map = MapPooling(cfg, rngs=rngs)
        self.head = Head(cfg)

    def __call__(
        self,
        images: Float[Array, "B H W C"],
        counts: Sequence[int] | None = None,
        *,
        key: PRNGKeyArray | None = None,
        train: bool = False,
        router: str | None = None,
    ) -> tuple[Float[Array, "B K"], dict]:
        """Classify images.

        Args:
          images: Normalised images.
          counts: Static tokens of each expert, summing to N; None: all to the widest.
          key: PRNG key; needed in training if the model drops anything or its router is noisy, and
            by a random router.
          train: Turns dropout and stochastic depth on.
          router: Overrides the model's router: "learned" or "random".

        Returns:
          float32 logits, and a dict of intermediates: "features" [B, N, D] (after the last
          LayerNorm, in token order, the class token last if there is one), "pre_logits"
          [B, D], and "routers", a dict from the layer of each router to its "assignment" int32
          [B, N] and "probs" [B, N, E] (Mixture-of-Depths: scores [B, N, 1]).

        Raises:
          ConfigError: the counts do not fit the model, or a key is missing.
        """
        cfg = self.cfg
        counts = _checked_counts(cfg, counts)
        router = router or cfg.router
        key, route_key = _keys(cfg, key, train, router)
        x = self.embed(images)
        pinned = int(cfg.pool == "cls")
        if pinned:
            cls = jnp.broadcast_to(self.cls[...].astype(x.dtype), (x.shape[0], 1, x.shape[2]))
            x = jnp.concatenate([x, cls], axis=1)
        tokens, routed = self.trunk(
            x, counts, pinned=pinned, router=router, key=key, route_key=route_key
        )
        x = self._norm(tokens)
        pooled = self._pool(x, tokens.counts)
        out = {"features": tokens.restore_order(x), "pre_logits": pooled, "routers": routed}
        return self.head(pooled), out

    def _norm(self, tokens: NestedTokens) -> Float[Array, "B N D"]:
        """Apply the last LayerNorm; tokens stay in the order of their groups."""
        if self.cfg.frozen == "dropped":
            return tokens.replace(live=self.norm(tokens.live, tokens.stats)).grouped()
        (x,) = self.norm((tokens.grouped(),), (None,))
        return x

    def _pool(self, x: Float[Array, "B N D"], counts: Sequence[int]) -> Float[Array, "B D"]:
        """Pool tokens that are in the order of their groups."""
        if self.cfg.pool == "cls":  # The last token of the widest group in use.
            return x[:, sum(counts[: widest_in_use(counts) + 1]) - 1]
        if self.cfg.pool == "map":
            return self.map(x)
        return x.mean(axis=1, dtype=jnp.float32)


class Head(nnx.Module):
    """The classifier, in float32; starts at zero with a chosen bias."""

    def __init__(self, cfg: ViTConfig):
        self.kernel = nnx.Param(jnp.zeros((cfg.width, cfg.num_classes), jnp.float32))
        self.bias = nnx.Param(jnp.full((cfg.num_classes,), cfg.head_bias, jnp.float32))

    def __call__(self, x: Float[Array, "B D"]) -> Float[Array, "B K"]:
        """Return logits."""
        return x.astype(jnp.float32) @ self.kernel[...] + self.bias[...]


def _checked_counts(cfg: ViTConfig, counts: Sequence[int] | None) -> tuple[int, ...]:
    if counts is None:
        return full_counts(cfg)
    counts = tuple(int(k) for k in counts)
    if len(counts) != cfg.num_experts or sum(counts) != cfg.num_patches or min(counts) < 0:
        raise ConfigError(
            f"counts={counts} must be {cfg.num_experts} numbers >= 0 that sum to the "
            f"{cfg.num_patches} patches"
        )
    if cfg.method in ("dense", "matvit") and max(counts) < cfg.num_patches:
        raise ConfigError(f"counts={counts}: method {cfg.method!r} sends all tokens to one expert")
    return counts


def _keys(cfg: ViTConfig, key: PRNGKeyArray | None, train: bool, router: str):
    """Return the keys for dropping and for a random router; None where nothing is drawn."""
    if router not in ROUTERS:
        raise ConfigError(f"router={router!r} is unknown; valid: {', '.join(ROUTERS)}")
    drops = train and (cfg.dropout > 0 or cfg.drop_path > 0)
    draws = router == "random" and cfg.method in ("mone", "mod")
    draws |= train and cfg.router_noise > 0 and cfg.method == "mone"
    if (drops or draws) and key is None:
        raise ConfigError("this call needs a PRNG key: it drops features or routes at random")
    if key is None:
        return None, None
    drop_key, route_key = jax.random.split(key)
    return (drop_key if drops else None), (route_key if draws else None)
