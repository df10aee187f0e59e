"""The static description of a ViT, checked once and then trusted."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import jax.numpy as jnp

from mone.errors import ConfigError
from mone.models.variants import decode_variant

METHODS = ("dense", "matvit", "mone", "mod")
NESTS = ("model", "ffn")
POOLS = ("gap", "cls", "map")
POSEMBS = ("learned", "sincos2d")
ROUTERS = ("learned", "random")
REMATS = ("none", "block")
FROZEN = ("kept", "dropped")
DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class ViTConfig:
    """Sizes and options of a vision transformer; hashable, so jit can take it as static.

    Attributes:
      width: D, features of a token.
      depth: L, number of blocks.
      num_heads: Attention heads; `width` is divisible by it.
      mlp_dim: Hidden features of the FFN.
      patch_size: Height and width of a patch in pixels.
      image_size: Height and width of the image in pixels.
      channels: C, channels of the image.
      num_classes: K, outputs of the classifier.
      pool: "gap" (mean over tokens), "cls" (class token) or "map" (attention pooling).
      posemb: "learned" or "sincos2d".
      method: "dense", "matvit", "mone" or "mod": how tokens meet experts.
      nest: "model" nests experts on the model width, "ffn" on the FFN's hidden width only.
      widths: E expert widths in units of the model width, ascending, the last one D. For "mod"
        they are (0, D): a token is skipped or processed.
      router: "learned" or "random".
      router_noise: Standard deviation of Gaussian noise on the router's logits in training, for
        the assignment only ("mone"; V-MoE, Riquelme et al. 2021, takes 1/E for its gates).
      router_scale: Whether `alpha r + 1` scales the FFN branch ("mone"); without it nothing trains
        the router.
      router_layers: Ascending layers that have a router on their input ("mone").
      frozen: What becomes of the features that a token's expert does not update ("mone",
        "matvit"): "kept" in LayerNorm's statistics and in the pooled output, or "dropped" from
        both, as if the token were only as wide as its expert.
      mod_every: One block in this many is routed ("mod").
      dropout: Dropout rate.
      drop_path: Stochastic depth rate of the last block; grows linearly from 0.
      remat: "none", or "block" to recompute blocks in the backward pass.
      scan: Stack the blocks' parameters and scan over them.
      dtype: Compute dtype; parameters are float32.
      head_bias: Initial bias of the classifier.
    """

    width: int
    depth: int
    num_heads: int
    mlp_dim: int
    patch_size: tuple[int, int]
    image_size: tuple[int, int]
    channels: int = 3
    num_classes: int = 1000
    pool: str = "gap"
    posemb: str = "learned"
    method: str = "dense"
    nest: str = "model"
    widths: tuple[int, ...] = ()
    router: str = "learned"
    router_noise: float = 0.0
    router_scale: bool = True
    router_layers: tuple[int, ...] = (0,)
    frozen: str = "kept"
    mod_every: int = 2
    dropout: float = 0.0
    drop_path: float = 0.0
    remat: str = "none"
    scan: bool = True
    dtype: str = "float32"
    head_bias: float = 0.0

    def __post_init__(self):
        """Fill in the widths that the method implies, and check all fields."""
        if self.method in ("dense", "mod"):
            implied = (self.width,) if self.method == "dense" else (0, self.width)
            if self.widths not in ((), implied):
                raise ConfigError(
                    f"model.widths={self.widths} has no meaning for method {self.method!r}; "
                    "leave it empty"
                )
            object.__setattr__(self, "widths", implied)
        problems = list(_problems(self))
        if problems:
            raise ConfigError("; ".join(problems))

    @property
    def num_experts(self) -> int:
        """E."""
        return len(self.widths)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return tuple(s // p for s, p in zip(self.image_size, self.patch_size, strict=True))

    @property
    def num_patches(self) -> int:
        """N, the number of patch tokens (a class token comes on top)."""
        return self.grid[0] * self.grid[1]

    @property
    def token_widths(self) -> tuple[int, ...]:
        """Live features of a token, by expert."""
        return self.widths if self.nest == "model" else (self.width,) * self.num_experts

    @property
    def hidden_widths(self) -> tuple[int, ...]:
        """Hidden features of the FFN, by expert."""
        if self.nest == "model":
            return (self.mlp_dim,) * self.num_experts
        return tuple(self.mlp_dim * d // self.width for d in self.widths)

    @property
    def compute_dtype(self) -> jnp.dtype:
        """The dtype that blocks compute in."""
        return jnp.dtype(self.dtype)


def _problems(c: ViTConfig):
    """Yield a sentence for each field that cannot be used."""
    positive = ("width", "depth", "num_heads", "mlp_dim", "channels", "num_classes", "mod_every")
    for name in positive:
        if getattr(c, name) < 1:
            yield f"model.{name}={getattr(c, name)} must be at least 1"
    if c.num_heads > 0 and c.width % c.num_heads:
        yield f"model.width={c.width} must be divisible by model.num_heads={c.num_heads}"
    if min(c.patch_size) < 1 or any(
        s < p or s % p for s, p in zip(c.image_size, c.patch_size, strict=True)
    ):
        yield f"model.image_size={c.image_size} must be a multiple of patch_size={c.patch_size}"
    for name, valid in (
        ("method", METHODS),
        ("nest", NESTS),
        ("pool", POOLS),
        ("posemb", POSEMBS),
        ("router", ROUTERS),
        ("remat", REMATS),
        ("dtype", DTYPES),
        ("frozen", FROZEN),
    ):
        if getattr(c, name) not in valid:
            yield f"model.{name}={getattr(c, name)!r} is unknown; valid: {', '.join(valid)}"
    for name in ("dropout", "drop_path"):
        if not 0 <= getattr(c, name) < 1:
            yield f"model.{name}={getattr(c, name)} must be in [0, 1)"
    if not 0 <= c.router_noise < float("inf"):
        yield f"model.router_noise={c.router_noise} must be at least 0"
    yield from _width_problems(c)
    layers = c.router_layers
    if c.method == "mone" and not (
        layers and list(layers) == sorted(set(layers)) and layers[0] >= 0 and layers[-1] < c.depth
    ):
        yield f"model.router_layers={layers} must be ascending layers in 0..{c.depth - 1}"
    if c.method == "mod" and c.mod_every > c.depth:
        yield f"model.mod_every={c.mod_every} must be at most model.depth={c.depth}"
    if c.posemb == "sincos2d" and c.width % 4:
        yield f"model.width={c.width} must be divisible by 4 for sincos2d position embeddings"


def _width_problems(c: ViTConfig):
    if c.method in ("dense", "mod"):
        if c.nest != "model":
            yield f"model.nest={c.nest!r} has no meaning for method {c.method!r}; use 'model'"
        return
    w = c.widths
    if not w or w[0] < 1 or any(a >= b for a, b in pairwise(w)):
        yield f"model.widths={w} must be strictly ascending and positive"
    elif w[-1] != c.width:
        yield f"model.widths={w} must end with model.width={c.width}"
    elif c.nest == "ffn" and c.frozen == "dropped":
        yield "model.frozen='dropped' has no meaning for model.nest='ffn': no feature is frozen"
    elif c.nest == "ffn" and any(c.mlp_dim * d % c.width for d in w):
        yield f"model.widths={w}: mlp_dim={c.mlp_dim} * d / {c.width} must be whole for each d"


def halving_widths(width: int, num_experts: int) -> tuple[int, ...]:
    """Return `d_j = D / 2^(E-j)`, ascending (MoNE, Sec. 3).

    Raises:
      ConfigError: the width cannot be halved that often.
    """
    if num_experts < 1 or width % 2 ** (num_experts - 1):
        raise ConfigError(
            f"model.num_experts={num_experts} must be at least 1 and model.width={width} "
            "divisible by 2^(num_experts-1); or set model.widths"
        )
    return tuple(width // 2 ** (num_experts - 1 - j) for j in range(num_experts))


def vit_config(model: Any) -> ViTConfig:
    """Build a ViTConfig from the `model` section of a configuration (see configs/base.py).

    Raises:
      ConfigError: a field is unknown, missing or invalid; the message names it.
    """
    sizes = {k: model[k] for k in ("width", "depth", "num_heads", "mlp_dim", "patch_size")}
    if model.variant:
        size, patch = decode_variant(model.variant)
        named = {**vars(size), "patch_size": patch}
        sizes = {k: v or named[k] for k, v in sizes.items()}
    missing = [f"model.{k}" for k, v in sizes.items() if not v]
    if missing:
        raise ConfigError(f"{', '.join(missing)} must be positive, or model.variant set")
    patch = sizes.pop("patch_size")
    nested = model.method in ("matvit", "mone")
    widths = tuple(model.widths)
    if nested and not widths:
        widths = halving_widths(sizes["width"], model.num_experts)
    same = ("channels", "num_classes", "pool", "posemb", "method", "nest", "router", "router_noise")
    same += (
        "router_scale",
        "frozen",
        "mod_every",
        "dropout",
        "drop_path",
        "remat",
        "scan",
        "dtype",
        "head_bias",
    )
    return ViTConfig(
        **sizes,
        patch_size=(patch, patch),
        image_size=(model.image_size, model.image_size),
        widths=widths,
        router_layers=tuple(model.router_layers),
        **{k: model[k] for k in same},
    )
