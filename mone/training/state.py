"""What a training step carries over to the next, and how it begins."""

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from mone.models import ViTConfig, functional
from mone.training.sharding import state_shardings

PyTree = Any


@flax.struct.dataclass
class TrainState:
    """A pytree of arrays; no PRNG state, for keys come from (seed, step).

    Attributes:
      step: int32 scalar, steps completed.
      params: Nested dict of float32 parameters.
      opt_state: State of the optax transformation.
      ema: Averaged parameters, or {} if none are kept.
    """

    step: jax.Array
    params: PyTree
    opt_state: PyTree
    ema: PyTree


def new_state(params: PyTree, tx: optax.GradientTransformation, *, ema: bool) -> TrainState:
    """Return the state before the first step."""
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=tx.init(params),
        ema=jax.tree.map(jnp.copy, params) if ema else {},
    )


def init_state(
    cfg: ViTConfig,
    tx: optax.GradientTransformation,
    mesh: Mesh,
    *,
    seed: int,
    ema: bool,
    params: PyTree | None = None,
) -> TrainState:
    """Return the state before the first step, laid out over the mesh.

    Args:
      cfg: The model.
      tx: The optimiser.
      mesh: From `mone.training.sharding.make_mesh`.
      seed: Initialises the parameters; the same on any mesh.
      ema: Whether to average the parameters.
      params: Parameters to start from instead of fresh ones.
    """
    if params is None:
        init = lambda: new_state(functional.init(cfg, seed), tx, ema=ema)  # noqa: E731
        return jax.jit(init, out_shardings=state_shardings(jax.eval_shape(init), mesh))()
    start = lambda p: new_state(p, tx, ema=ema)  # noqa: E731
    shardings = state_shardings(jax.eval_shape(start, params), mesh)
    return jax.jit(start, out_shardings=shardings)(params)


def abstract_state(
    cfg: ViTConfig, tx: optax.GradientTransformation, mesh: Mesh, *, ema: bool
) -> TrainState:
    """Return the state's shapes, dtypes and shardings, without making it."""
    shapes = jax.eval_shape(lambda: new_state(functional.init(cfg, 0), tx, ema=ema))
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
        shapes,
        state_shardings(shapes, mesh),
    )
