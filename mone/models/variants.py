"""Sizes of vision transformers by name.

Ti, S, B, L: Touvron et al. 2021 (DeiT) and Dosovitskiy et al. 2021 (ViT, Table 1); H from the
latter.
"""

import re
from dataclasses import dataclass

from mone.errors import ConfigError


@dataclass(frozen=True)
class Size:
    """Width D, number of blocks, hidden features of the FFN and number of heads."""

    width: int
    depth: int
    mlp_dim: int
    num_heads: int


SIZES = {
    "Ti": Size(192, 12, 768, 3),
    "S": Size(384, 12, 1536, 6),
    "B": Size(768, 12, 3072, 12),
    "L": Size(1024, 24, 4096, 16),
    "H": Size(1280, 32, 5120, 16),
}


def decode_variant(variant: str) -> tuple[Size, int]:
    """Return the size and the patch size (pixels) that a name such as "B/16" stands for.

    Raises:
      ConfigError: the name is not SIZE/PATCH with a known size.
    """
    match = re.fullmatch(r"(\w+)/(\d+)", variant)
    if match is None or match[1] not in SIZES or int(match[2]) == 0:
        raise ConfigError(
            f"model.variant={variant!r} is unknown; valid: SIZE/PATCH, e.g. 'B/16', with SIZE "
            f"one of {', '.join(SIZES)}"
        )
    return SIZES[match[1]], int(match[2])
