"""Mixture-of-Depths: some blocks process only the tokens that a router picks.

Source: Raposo et al. 2024; the baseline of MoNE (12.5 % of tokens in every second block).

Axes: B batch, N tokens, D model width, L layers, k processed tokens.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray

from mone.models.config import ViTConfig
from mone.models.trunk import Blocks, fold
from mone.nested import NestedTokens, expert_preferred_routing, group_tokens
from mone.nested.tokens import take_tokens


class DepthRouter(nnx.Module):
    """A scalar score for each token, in float32: `w^T x` (Sec. 3.4)."""

    def __init__(self, width: int, *, rngs: nnx.Rngs):
        init = nnx.initializers.lecun_normal()
        self.kernel = nnx.Param(init(rngs.params(), (width, 1), jnp.float32))

    def __call__(self, x: Float[Array, "B N D"]) -> Float[Array, "B N 1"]:
        """Return the scores."""
        return jnp.einsum(
            "bnd,de->bne",
            x.astype(jnp.float32),
            self.kernel[...],
            precision=jax.lax.Precision.HIGHEST,
        )


class DepthTrunk(nnx.Module):
    """Blocks of which every `mod_every`-th one is routed."""

    def __init__(self, cfg: ViTConfig, *, rngs: nnx.Rngs):
        self.blocks = Blocks(cfg, rngs=rngs)
        self.width, self.depth, self.every = cfg.width, cfg.depth, cfg.mod_every
        self.routers = nnx.List(
            DepthRouter(cfg.width, rngs=rngs) for _ in range(cfg.depth // cfg.mod_every)
        )

    def __call__(
        self,
        x: Float[Array, "B N D"],
        counts: Sequence[int],
        *,
        pinned: int,
        router: str,
        key: PRNGKeyArray | None,
        route_key: PRNGKeyArray | None,
    ) -> tuple[NestedTokens, dict[int, dict]]:
        """Run all blocks; arguments and results are those of `NestedTrunk`.

        `counts` is (skipped, processed) in each routed block; pinned tokens are processed.
        """
        routed = {}
        for r in range(self.depth // self.every):
            layer = (r + 1) * self.every - 1
            x = self._dense(x, range(layer - self.every + 1, layer), key)
            subkey = fold(route_key, r)
            x, info = self._routed(self.routers[r], x, counts, pinned, router, layer, key, subkey)
            routed[layer] = info
        x = self._dense(x, range(self.depth - self.depth % self.every, self.depth), key)
        return self._tokens(x), routed

    def _tokens(self, x: Array) -> NestedTokens:
        return group_tokens(x, (x.shape[1],), (self.width,))

    def _dense(self, x: Array, layers: range, key) -> Array:
        tokens = self._tokens(x)
        return self.blocks.run(tokens.live, tokens, layers, key)[0]

    def _routed(self, router_module, x, counts, pinned, router, layer, key, route_key):
        """`x_i + r_i (block(x)_i - x_i)` for the picked tokens; the others pass through."""
        patches = x.shape[1] - pinned
        scores = router_module(x)  # [B, N, 1]; pinned tokens are scored but always processed.
        ranks = scores[:, :patches]
        if router == "random":
            ranks = jax.random.uniform(route_key, ranks.shape)
        both = jnp.concatenate([jnp.zeros_like(ranks), ranks], axis=-1)
        assignment = expert_preferred_routing(both, counts)  # 1: processed
        info = {"assignment": assignment, "probs": ranks}
        order = jnp.argsort(assignment, axis=-1, stable=True)[:, counts[0] :]
        ride = jnp.broadcast_to(jnp.arange(patches, x.shape[1]), (x.shape[0], pinned))
        picked = jnp.concatenate([order, ride], axis=-1)
        if picked.shape[1] == 0:
            return x, info
        chosen = take_tokens(x, picked)
        delta = self._dense(chosen, range(layer, layer + 1), key) - chosen
        delta = delta * take_tokens(scores, picked).astype(delta.dtype)
        rows = jnp.arange(x.shape[0])[:, None]
        return x.at[rows, picked].add(delta), info
