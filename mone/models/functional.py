"""Models as pure functions of a parameter tree, for plain `jax.jit`.

Parameters are nested dicts of float32 arrays. Splitting and merging here, inside jit, keeps the
cost of a call in Python down.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
from flax import nnx
from jaxtyping import Array, PRNGKeyArray

from mone.models.config import ViTConfig
from mone.models.vit import ViT

Params = dict[str, Any]


def init(cfg: ViTConfig, seed: int) -> Params:
    """Return initial parameters; the same seed gives the same parameters."""
    return _initialiser(cfg)(jax.random.key(seed))


def abstract_params(cfg: ViTConfig) -> Params:
    """Return shapes and dtypes of the parameters, without computing them."""
    _, state = _structure(cfg)
    return nnx.to_pure_dict(state)


def build(cfg: ViTConfig, params: Params) -> ViT:
    """Return the module with these parameters."""
    graphdef, state = _structure(cfg)
    state = jax.tree.map(lambda x: x, state)  # A copy: replacing works in place.
    nnx.replace_by_pure_dict(state, params)
    return nnx.merge(graphdef, state)


def apply(
    cfg: ViTConfig,
    params: Params,
    images: Array,
    counts: Sequence[int] | None = None,
    *,
    key: PRNGKeyArray | None = None,
    train: bool = False,
    router: str | None = None,
) -> tuple[Array, dict]:
    """Run the model; see `ViT.__call__`. Everything but params, images and key is static."""
    return build(cfg, params)(images, counts, key=key, train=train, router=router)


@lru_cache(maxsize=64)
def _initialiser(cfg: ViTConfig):
    """Compile initialisation once for a model, whatever the seed."""

    def create(key):
        return nnx.to_pure_dict(nnx.state(ViT(cfg, rngs=nnx.Rngs(params=key)), nnx.Param))

    return jax.jit(create)


@lru_cache(maxsize=64)
def _structure(cfg: ViTConfig) -> tuple[nnx.GraphDef, nnx.State]:
    model = nnx.eval_shape(lambda: ViT(cfg, rngs=nnx.Rngs(params=0)))
    graphdef, params = nnx.split(model, nnx.Param)
    return graphdef, params
