"""From a budget to static token counts, for each method.

A budget is an effective capacity `e_c`; a model runs on token counts, one per expert, which
are compile-time values. Axes: N tokens, E experts.
"""

from mone.errors import ConfigError
from mone.models.config import ViTConfig
from mone.nested import allocate_capacity, effective_capacity, expert_token_counts

Counts = tuple[int, ...]


def full_counts(cfg: ViTConfig) -> Counts:
    """Return the counts that send every token to the widest expert: the dense model."""
    return expert_counts(cfg, cfg.num_experts - 1)


def expert_counts(cfg: ViTConfig, expert: int) -> Counts:
    """Return the counts that send every token to one expert, 0 <= expert < E (MatViT)."""
    return tuple(cfg.num_patches if j == expert else 0 for j in range(cfg.num_experts))


def budget_counts(
    cfg: ViTConfig,
    e_c: float,
    *,
    allocation: str = "entropy",
    delta: float = 2.0,
    beta: float = 10.0,
) -> Counts:
    """Return how many tokens each expert gets at effective capacity `e_c`.

    Args:
      cfg: The model. "dense" has one budget, 1; "matvit" has its widths as shares of D; "mone"
        any `e_c` in `[d_1 / D, 1]`; "mod" any average share of full blocks from
        `1 - routed / depth` (no token in any routed block) to 1.
      e_c: Effective capacity, in 0..1.
      allocation: Allocation method (mone), see `mone.nested.allocate_capacity`.
      delta: Its preference for wide experts.
      beta: Its entropy weight.

    Returns:
      E static counts that sum to N, ascending in width. For "mod": (skipped, processed) in
      each routed block.

    Raises:
      ConfigError: the model has no such budget; the message says which it has.
    """
    if cfg.method == "mone":
        capacity = allocate_capacity(e_c, cfg.widths, delta, beta, allocation)
        return expert_token_counts(capacity, cfg.num_patches)
    if cfg.method == "mod":
        return _mod_counts(cfg, e_c)
    shares = [d / cfg.width for d in cfg.widths]
    for j, share in enumerate(shares):
        if abs(share - e_c) < 1e-6:
            return expert_counts(cfg, j)
    raise ConfigError(
        f"e_c={e_c} is no budget of method {cfg.method!r}; "
        f"valid: {', '.join(f'{s:g}' for s in shares)}"
    )


def realised_capacity(cfg: ViTConfig, counts: Counts) -> float:
    """Return the effective capacity of token counts, after rounding."""
    if cfg.method != "mod":
        return effective_capacity(counts, cfg.widths)
    routed = cfg.depth // cfg.mod_every
    return 1 - routed / cfg.depth * counts[0] / cfg.num_patches


def _mod_counts(cfg: ViTConfig, e_c: float) -> Counts:
    routed = cfg.depth // cfg.mod_every
    low = 1 - routed / cfg.depth
    if not low - 1e-9 <= e_c <= 1 + 1e-9:
        raise ConfigError(
            f"e_c={e_c} is infeasible: with one block in {cfg.mod_every} routed "
            f"(model.mod_every) it must lie in [{low:.6g}, 1]"
        )
    processed = round((e_c - low) * cfg.depth / routed * cfg.num_patches)
    return cfg.num_patches - processed, processed
