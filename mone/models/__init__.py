"""Vision transformer models: one family for every method."""

from mone.models.budgets import (
    budget_counts,
    expert_counts,
    full_counts,
    realised_capacity,
)
from mone.models.config import ViTConfig, halving_widths, vit_config
from mone.models.variants import SIZES, decode_variant
from mone.models.vit import ViT

__all__ = [
    "SIZES",
    "ViT",
    "ViTConfig",
    "budget_counts",
    "decode_variant",
    "expert_counts",
    "full_counts",
    "halving_widths",
    "realised_capacity",
    "vit_config",
]
