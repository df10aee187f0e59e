"""The stack of blocks: where tokens are routed, and how blocks are scanned.

The trunk is a sequence of segments; in each the token groups are the same in every layer, so its
blocks are one scan. A router opens a segment.

Axes: B batch, N tokens, D model width, E experts (ascending in width), L layers.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray

from mone.models.block import Block
from mone.models.config import ViTConfig
from mone.nested import (
    NestedTokens,
    Router,
    expert_preferred_routing,
    group_tokens,
    random_router_probs,
)


class Blocks(nnx.Module):
    """L blocks, stacked (each parameter has a leading axis L) or as a list."""

    def __init__(self, cfg: ViTConfig, *, rngs: nnx.Rngs):
        @nnx.split_rngs(splits=cfg.depth)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def create(rngs: nnx.Rngs) -> Block:
            return Block(cfg, rngs=rngs)

        stacked = create(rngs)
        if cfg.scan:
            self.stacked = stacked
        else:
            graphdef, state = nnx.split(stacked)
            self.layers = nnx.List(
                nnx.merge(graphdef, jax.tree.map(lambda p, i=i: p[i], state))
                for i in range(cfg.depth)
            )
        self.remat = cfg.remat
        self.rates = tuple(cfg.drop_path * i / max(cfg.depth - 1, 1) for i in range(cfg.depth))
        self.drop_path = cfg.drop_path

    def run(
        self, live: tuple, tokens: NestedTokens, layers: range, key: PRNGKeyArray | None
    ) -> tuple:
        """Apply blocks to the live features of the token groups.

        Args:
          live: E arrays [B, n_j, d_j].
          tokens: The groups they belong to.
          layers: Which blocks.
          key: Turns dropout and stochastic depth on.
        """
        if len(layers) == 0:
            return live
        keys = None if key is None else jax.random.split(key, len(self.rates))
        if not hasattr(self, "stacked") or len(layers) == 1:
            for i in layers:
                live = self._apply(*self._block(i), live, tokens, i, keys)
            return live
        graphdef, state = nnx.split(self.stacked)
        state = jax.tree.map(lambda p: p[layers.start : layers.stop : layers.step], state)

        def body(live, layer):
            block_state, i = layer
            return self._apply(graphdef, block_state, live, tokens, i, keys), None

        return jax.lax.scan(body, live, (state, jnp.asarray(layers)))[0]

    def _block(self, i: int) -> tuple[nnx.GraphDef, nnx.State]:
        if hasattr(self, "stacked"):
            graphdef, state = nnx.split(self.stacked)
            return graphdef, jax.tree.map(lambda p: p[i], state)
        return nnx.split(self.layers[i])

    def _apply(self, graphdef, state, live, tokens, i, keys):
        rate = jnp.asarray(self.rates)[i] if self.drop_path else 0.0

        def call(state, live, tokens, rate, key):
            return nnx.merge(graphdef, state)(live, tokens, drop_path=rate, key=key)

        if self.remat == "block":
            call = jax.checkpoint(call, prevent_cse=not hasattr(self, "stacked"))
        return call(state, live, tokens, rate, None if keys is None else keys[i])


class NestedTrunk(nnx.Module):
    """Blocks of dense, MatViT and MoNE models."""

    def __init__(self, cfg: ViTConfig, *, rngs: nnx.Rngs):
        self.blocks = Blocks(cfg, rngs=rngs)
        self.widths, self.depth = cfg.token_widths, cfg.depth
        self.router_layers = cfg.router_layers if cfg.method == "mone" else ()
        self.segments = _segments(self.router_layers, cfg.depth)
        self.router_noise = cfg.router_noise
        self.keep_frozen = cfg.frozen == "kept"
        if self.router_layers:
            self.routers = nnx.List(
                Router(cfg.width, cfg.num_experts, rngs=rngs) for _ in self.router_layers
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
        """Run all blocks.

        Args:
          x: Tokens, the last `pinned` of which are not routed.
          counts: Tokens of each expert, without the pinned ones.
          pinned: Number of tokens that ride with the widest expert in use (the class token).
          router: "learned" or "random".
          key: Turns dropout and stochastic depth on.
          route_key: For the random router, or for noise on a learned one.

        Returns:
          The tokens after the last block, and what each router did.
        """
        routed = {}
        for router_index, layers in self.segments:
            if router_index is None:
                tokens = group_tokens(
                    x,
                    _pin(self._unrouted(counts), pinned),
                    self.widths,
                    keep_frozen=self.keep_frozen,
                )
            else:
                subkey = fold(route_key, router_index)
                tokens, info = self._route(router_index, x, counts, pinned, router, subkey)
                routed[layers.start] = info
            live = self.blocks.run(tokens.live, tokens, layers, key)
            tokens = tokens.replace(live=live)
            if layers.stop < self.depth:
                x = tokens.restore_order(tokens.grouped())
        return tokens, routed

    def _unrouted(self, counts: Sequence[int]) -> Sequence[int]:
        """Layers before a router are of full width; without routers the counts say it all."""
        if not self.router_layers:
            return counts
        return (0,) * (len(counts) - 1) + (sum(counts),)

    def _route(self, index, x, counts, pinned, router, key):
        patches = x[:, : x.shape[1] - pinned]
        logits = self.routers[index].logits(patches)  # [B, N, E]
        probs = preferred = jax.nn.softmax(logits, axis=-1)
        if router == "random":
            probs = preferred = random_router_probs(key, logits.shape)
        elif key is not None:  # Explores: the token's probability is that without noise.
            noise = self.router_noise * jax.random.normal(key, logits.shape)
            preferred = jax.nn.softmax(logits + noise, axis=-1)
        assignment = expert_preferred_routing(preferred, counts)
        info = {"assignment": assignment, "probs": probs}
        if pinned:
            assignment, probs = _pin_routing(assignment, probs, counts, pinned)
        counts = _pin(counts, pinned)
        tokens = group_tokens(
            x, counts, self.widths, assignment, probs, keep_frozen=self.keep_frozen
        )
        return tokens, info


def _segments(router_layers: Sequence[int], depth: int) -> tuple[tuple[int | None, range], ...]:
    """Return (router or None, layers) of each stretch of layers with the same token groups."""
    first = router_layers[0] if router_layers else depth
    unrouted = ((None, range(first)),) if first else ()
    stops = (*router_layers[1:], depth) if router_layers else ()
    layers = map(range, router_layers, stops)
    return (*unrouted, *enumerate(layers))


def widest_in_use(counts: Sequence[int]) -> int:
    """Return the index of the widest expert that gets tokens."""
    return max(j for j, k in enumerate(counts) if k)


def _pin(counts: Sequence[int], pinned: int) -> tuple[int, ...]:
    top = widest_in_use(counts)
    return tuple(k + pinned * (j == top) for j, k in enumerate(counts))


def _pin_routing(assignment: Array, probs: Array, counts: Sequence[int], pinned: int):
    """Append pinned tokens: routed to the widest expert in use, with probability 1."""
    top = widest_in_use(counts)
    batch = assignment.shape[0]
    ride = jnp.full((batch, pinned), top, assignment.dtype)
    sure = jnp.broadcast_to(jax.nn.one_hot(top, probs.shape[-1]), (batch, pinned, probs.shape[-1]))
    return jnp.concatenate([assignment, ride], 1), jnp.concatenate([probs, sure], 1)


def fold(key: PRNGKeyArray | None, data: int) -> PRNGKeyArray | None:
    """Fold `data` into a key, if there is one."""
    return None if key is None else jax.random.fold_in(key, data)
