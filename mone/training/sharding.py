"""The device mesh and where arrays live on it.

Axes of the mesh: "data" splits the batch; "fsdp" splits the batch and every parameter with its
optimiser state and average. The compiler inserts the collectives (axis type Auto).
"""

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from ml_collections import ConfigDict

from mone.errors import ConfigError

PyTree = Any
AXES = ("data", "fsdp")


def make_mesh(config: ConfigDict) -> Mesh:
    """Return the mesh over all devices that `config.mesh` asks for.

    Raises:
      ConfigError: If the axes do not multiply to the number of devices.
    """
    devices = jax.device_count()
    sizes = [config.mesh[a] for a in AXES]
    asked = f"mesh.data={sizes[0]}, mesh.fsdp={sizes[1]}"
    if sizes.count(-1) > 1 or any(s < 1 and s != -1 for s in sizes):
        raise ConfigError(f"{asked}: axes must be positive, and at most one may be -1")
    if -1 in sizes:
        known = -int(np.prod(sizes))
        if devices % known:
            raise ConfigError(f"{asked}: {known} does not divide the {devices} devices")
        sizes[sizes.index(-1)] = devices // known
    if np.prod(sizes) != devices:
        raise ConfigError(
            f"{asked}: the product must be the number of devices, {devices}; "
            "one axis may be -1 for all that remain"
        )
    return jax.make_mesh(sizes, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def check_batch(config: ConfigDict, mesh: Mesh) -> None:
    """Check that batches split evenly over devices, micro-batches and hosts.

    Raises:
      ConfigError: If one does not.
    """
    accum = config.optimizer.accum_steps
    if accum < 1:
        raise ConfigError(f"optimizer.accum_steps={accum}: must be at least 1")
    unit = mesh.size * accum
    if config.batch_size < 1 or config.batch_size % unit:
        raise ConfigError(
            f"batch_size={config.batch_size} must be a positive multiple of {unit} "
            f"({mesh.size} devices x {accum} micro-batches)"
        )
    if config.eval.batch_size < 1 or config.eval.batch_size % mesh.size:
        raise ConfigError(
            f"eval.batch_size={config.eval.batch_size} must be a positive multiple of the "
            f"{mesh.size} devices"
        )


def replicated(mesh: Mesh) -> NamedSharding:
    """Return the sharding of an array that every device holds whole."""
    return NamedSharding(mesh, P())


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding that splits the leading axis over all devices."""
    return NamedSharding(mesh, P(AXES))


def state_shardings(abstract: PyTree, mesh: Mesh) -> PyTree:
    """Return each array's sharding: over "fsdp" along its longest axis that divides evenly.

    The rule looks at the shape only, so that a parameter, its moments and its average, which
    share a shape, lie alike. Arrays without such an axis are replicated.

    Args:
      abstract: Tree of arrays or `jax.ShapeDtypeStruct`.
      mesh: From `make_mesh`.
    """
    parts = mesh.shape["fsdp"]

    def one(x: Any) -> NamedSharding:
        fits = [i for i, size in enumerate(x.shape) if size % parts == 0]
        if parts == 1 or not fits:
            return replicated(mesh)
        axis = max(fits, key=lambda i: (x.shape[i], i))  # The last one among equals.
        return NamedSharding(mesh, P(*(None,) * axis, "fsdp"))

    return jax.tree.map(one, abstract)


def put_batch(batch: dict[str, np.ndarray], mesh: Mesh) -> dict[str, jax.Array]:
    """Return this host's share of a batch as part of the global arrays.

    Arrays are split over all devices along their leading axis; scalars are replicated.
    """
    split, whole = batch_sharding(mesh), replicated(mesh)
    return {
        k: jax.make_array_from_process_local_data(split if np.ndim(v) else whole, v)
        for k, v in batch.items()
    }
