"""The token container: one array per expert, with nothing but the features it works on.

A token sent to expert `j` is updated in its first `d_j` features only. The others are frozen
from the router on, so all that later layers need of them are the statistics which LayerNorm
takes over the full width. Tokens are ordered by expert once, at the router; attention does not
depend on the order, so nothing is put back before features leave the trunk.

Axes: B batch, N tokens, D model width, E experts (ascending in width), n_j tokens and d_j
features of expert j.
"""

from collections.abc import Sequence
from itertools import pairwise

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


@flax.struct.dataclass
class FrozenStats:
    """Mean and centred sum of squares of a token's frozen features, float32 [B, n_j, 1]."""

    mean: Array
    m2: Array
    size: int = flax.struct.field(pytree_node=False)


@flax.struct.dataclass
class NestedTokens:
    """Tokens grouped by expert.

    Attributes:
      live: E arrays [B, n_j, d_j], the features that expert j reads and writes.
      frozen: E arrays [B, n_j, D - d_j], unchanged since the router.
      stats: E FrozenStats, None where nothing is frozen.
      prob: E arrays float32 [B, n_j, 1], the router's probability for the token's own expert;
        None without a router.
      order: int32 [B, N], the token index of each row of the groups taken one after another;
        None if that is 0..N-1.
    """

    live: tuple[Array, ...]
    frozen: tuple[Array, ...]
    stats: tuple[FrozenStats | None, ...]
    prob: tuple[Array, ...] | None
    order: Array | None

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of tokens of each expert."""
        return tuple(x.shape[-2] for x in self.live)

    def grouped(self) -> Float[Array, "B N D"]:
        """Return all tokens at full width, in the order of the groups."""
        full = [
            jnp.concatenate([x, f], axis=-1) if f.shape[-1] else x
            for x, f in zip(self.live, self.frozen, strict=True)
            if x.shape[-2]
        ]
        return full[0] if len(full) == 1 else jnp.concatenate(full, axis=-2)

    def restore_order(self, x: Float[Array, "B N ..."]) -> Float[Array, "B N ..."]:
        """Return rows that are in the order of the groups in token order."""
        if self.order is None:
            return x
        return take_tokens(x, jnp.argsort(self.order, axis=-1))


def take_tokens(x: Float[Array, "B N F"], index: Int[Array, "B M"]) -> Float[Array, "B M F"]:
    """Gather tokens by index, image by image."""
    return jnp.take_along_axis(x, index[..., None], axis=-2)


def group_tokens(
    x: Float[Array, "B N D"],
    counts: Sequence[int],
    widths: Sequence[int],
    assignment: Int[Array, "B N"] | None = None,
    probs: Float[Array, "B N E"] | None = None,
    *,
    keep_frozen: bool = True,
) -> NestedTokens:
    """Group tokens by expert and split off the features that stay frozen.

    Args:
      x: Tokens at full width.
      counts: Static tokens of each expert, summing to N.
      widths: Live features of each expert; D for all if experts nest on the FFN only.
      assignment: Expert of each token; None if all tokens go to a single expert.
      probs: Router probabilities; None without a router.
      keep_frozen: False replaces the frozen features by zeros and leaves them out of `stats`.

    Returns:
      The grouped tokens; tokens of a group keep their order.
    """
    order = None
    if assignment is not None and max(counts) < sum(counts):
        order = jnp.argsort(assignment, axis=-1, stable=True).astype(jnp.int32)
        x = take_tokens(x, order)
        probs = None if probs is None else take_tokens(probs, order)
    live, frozen, stats, prob = [], [], [], []
    start = 0
    for j, (count, width) in enumerate(zip(counts, widths, strict=True)):
        group = x[:, start : start + count]
        live.append(group[..., :width])
        rest = group[..., width:]
        frozen.append(rest if keep_frozen else jnp.zeros_like(rest))
        stats.append(frozen_stats(rest) if keep_frozen else None)
        if probs is not None:
            prob.append(probs[:, start : start + count, j : j + 1])
        start += count
    return NestedTokens(
        live=tuple(live),
        frozen=tuple(frozen),
        stats=tuple(stats),
        prob=tuple(prob) if probs is not None else None,
        order=order,
    )


def frozen_stats(frozen: Float[Array, "B n F"]) -> FrozenStats | None:
    """Return mean and centred sum of squares of frozen features; None if there are none."""
    size = frozen.shape[-1]
    if size == 0:
        return None
    f = frozen.astype(jnp.float32)
    mean = f.mean(axis=-1, keepdims=True)
    return FrozenStats(mean=mean, m2=jnp.square(f - mean).sum(axis=-1, keepdims=True), size=size)


def split_groups(x: Array, counts: Sequence[int]) -> tuple[Array, ...]:
    """Split [B, N, ...], in the order of the groups, into one array per expert."""
    bounds = [sum(counts[:j]) for j in range(len(counts) + 1)]
    return tuple(jax.lax.slice_in_dim(x, a, b, axis=1) for a, b in pairwise(bounds))
