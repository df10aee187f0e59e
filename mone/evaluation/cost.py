"""Multiply-accumulates of one image's forward pass, counted from the shapes.

What is counted: every matrix product and convolution, one MAC for each multiply-add (the
"FLOPs" of the MoNE paper's axes, arXiv 2407.19985, are these). What is not: LayerNorm, softmax,
GELU, biases, residual sums and the router's sort, which are not matrix products; together they
are about 1 % of a dense ViT-S/16's arithmetic. `mone.evaluation.program` counts the same thing
from the traced program, and the tests hold the two equal.

Axes: N patch tokens, T tokens in attention (N, and the CLS token if there is one), D model
width, M hidden features of the FFN, E experts, K classes, L layers.
"""

import dataclasses
from collections.abc import Sequence

from mone.config_checks import READ_BY
from mone.errors import ConfigError
from mone.models import ViTConfig, budget_counts, full_counts

Counts = tuple[int, ...]  # Tokens that each expert gets, ascending in width; they sum to N.
Mix = list[tuple[int, int, int]]  # (tokens, width, FFN hidden width) by expert, in one layer.


@dataclasses.dataclass(frozen=True)
class Macs:
    """MACs of one image's forward pass, by part."""

    patch_embed: int  # N * patch pixels * D.
    attention_proj: int  # Q, K, V: n_j d_j 3D; out: n_j D d_j.
    attention_product: int  # Q K^T and its product with V: 2 T^2 D, never reduced.
    ffn: int  # 2 n_j d_j M; with nest="ffn" 2 n_j D h_j, h_j = M d_j / D.
    router: int  # N D E for each router (Mixture-of-Depths: T D).
    pool: int  # Attention pooling ("map"); 0 for "gap" and "cls".
    head: int  # D * K.

    @property
    def total(self) -> int:
        """All parts together."""
        return sum(self.parts().values())

    def parts(self) -> dict[str, int]:
        """Return the parts as a dictionary, in the order of the forward pass."""
        return dataclasses.asdict(self)


def count_macs(cfg: ViTConfig, counts: Sequence[int] | None = None) -> Macs:
    """Count the MACs of one image's forward pass.

    Args:
      cfg: The model.
      counts: Tokens for each expert, ascending in width, as `mone.models.budget_counts` gives
        them; None: full width.

    Returns:
      The MACs by part; exact, in integers.

    Raises:
      ValueError: `counts` has another length than the experts, or does not sum to N.
    """
    counts = full_counts(cfg) if counts is None else tuple(counts)
    if len(counts) != cfg.num_experts or sum(counts) != cfg.num_patches or min(counts) < 0:
        raise ValueError(
            f"counts={counts} must be {cfg.num_experts} numbers that sum to {cfg.num_patches}"
        )
    D = cfg.width
    proj = product = ffn = 0
    for mix in _layer_mixes(cfg, counts):
        T = sum(n for n, width, _ in mix if width)
        proj += sum(n * 4 * width * D for n, width, _ in mix)
        ffn += sum(n * 2 * width * hidden for n, width, hidden in mix)
        product += 2 * T * T * D
    patch_pixels = cfg.patch_size[0] * cfg.patch_size[1] * cfg.channels
    return Macs(
        patch_embed=cfg.num_patches * patch_pixels * D,
        attention_proj=proj,
        attention_product=product,
        ffn=ffn,
        router=_router_macs(cfg),
        pool=_pool_macs(cfg),
        head=D * cfg.num_classes,
    )


def dense_macs(cfg: ViTConfig) -> Macs:
    """Return the MACs of the dense ViT of the same sizes: no router, every token full width."""
    return count_macs(dataclasses.replace(cfg, **dense_fields(cfg)))


def dense_fields(cfg: ViTConfig) -> dict:
    """Return the fields to replace in `cfg` so that it describes the dense ViT of its sizes.

    What a method alone uses goes back to its default, so that all methods have one dense ViT.
    """
    defaults = {
        field.name: field.default
        for field in dataclasses.fields(ViTConfig)
        if "dense" not in READ_BY.get(f"model.{field.name}", ("dense",))
    }
    return {**defaults, "method": "dense", "nest": "model", "widths": (cfg.width,)}


def e_c_for_macs(
    cfg: ViTConfig,
    macs: float,
    **allocation,
) -> float:
    """Return the largest budget whose forward pass costs at most `macs`.

    `count_macs(cfg, budget_counts(cfg, result, **allocation)).total` is at most `macs`, and a
    larger budget, up to the rounding to whole tokens, exceeds it.

    Args:
      cfg: The model.
      macs: Target, in MACs an image.
      **allocation: `allocation`, `delta`, `beta` of `mone.models.budget_counts`.

    Returns:
      e_c, within the model's feasible interval.

    Raises:
      ConfigError: No budget costs that little; the message gives the feasible MACs. A target
        above the full model's cost is one too: there is nothing to spend it on.
    """

    def cost(e_c: float) -> int:
        return count_macs(cfg, budget_counts(cfg, e_c, **allocation)).total

    fixed = [d / cfg.width for d in cfg.widths] if cfg.method in ("dense", "matvit") else []
    lowest, highest = (fixed[0] if fixed else _lowest_e_c(cfg)), 1.0
    least, most = cost(lowest), cost(highest)
    if not least <= macs <= most:
        raise ConfigError(
            f"macs = {macs / 1e9:.4g} GMAC cannot be met by this {cfg.method} model: e_c between "
            f"{lowest:.4g} and {highest:.4g} costs {least / 1e9:.4g} to {most / 1e9:.4g} GMAC."
        )
    if fixed:
        return max(e_c for e_c in fixed if cost(e_c) <= macs)
    if macs == most:
        return highest
    low, high = lowest, highest
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle) <= macs else (low, middle)
    return low


def _layer_mixes(cfg: ViTConfig, counts: Counts) -> list[Mix]:
    """Return each layer's tokens by expert, the CLS token with the widest expert in use."""
    full = full_counts(cfg)
    mixes = []
    for layer in range(cfg.depth):
        tokens = list(counts if _is_nested(cfg, layer) else full)
        if cfg.pool == "cls":  # A routed Mixture-of-Depths block always processes it.
            ride = -1 if cfg.method == "mod" else max(j for j, n in enumerate(tokens) if n)
            tokens[ride] += 1
        mixes.append(list(zip(tokens, cfg.token_widths, cfg.hidden_widths, strict=True)))
    return mixes


def _is_nested(cfg: ViTConfig, layer: int) -> bool:
    """Whether a layer runs at the budget's counts; the others are full width."""
    if cfg.method == "mone":
        return layer >= cfg.router_layers[0]
    if cfg.method == "mod":
        return (layer + 1) % cfg.mod_every == 0
    return True


def _router_macs(cfg: ViTConfig) -> int:
    if cfg.method == "mone":
        return len(cfg.router_layers) * cfg.num_patches * cfg.width * cfg.num_experts
    if cfg.method == "mod":
        return cfg.depth // cfg.mod_every * (cfg.num_patches + (cfg.pool == "cls")) * cfg.width
    return 0


def _pool_macs(cfg: ViTConfig) -> int:
    """Return the MACs of attention pooling: one query over N tokens, then an MLP."""
    if cfg.pool != "map":
        return 0
    D, N = cfg.width, cfg.num_patches
    projections = 2 * D * D + 2 * N * D * D  # Query and output of one token; keys and values.
    return projections + 2 * N * D + 2 * D * cfg.mlp_dim


def _lowest_e_c(cfg: ViTConfig) -> float:
    """Return the smallest budget of a model whose budgets are an interval ("mone", "mod")."""
    if cfg.method == "mod":
        return 1 - cfg.depth // cfg.mod_every / cfg.depth
    return cfg.widths[0] / cfg.width
