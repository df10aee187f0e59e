"""The first lines of a run: what will be computed, on what, and what it costs."""

from collections.abc import Iterator

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from mone.models import ViTConfig, realised_capacity
from mone.training.budgets import BudgetSchedule
from mone.training.clu_bridge import parameter_table
from mone.training.state import PyTree


def overview(
    config: ConfigDict,
    cfg: ViTConfig,
    mesh: Mesh,
    params: PyTree,
    budgets: BudgetSchedule,
    *,
    num_train: int,
    steps_per_epoch: int,
    total_steps: int,
) -> Iterator[str]:
    """Yield the lines.

    Args:
      config: The whole configuration.
      cfg: The model.
      mesh: The devices.
      params: The parameters, or their shapes and dtypes.
      budgets: What the steps train on.
      num_train: Training images.
      steps_per_epoch: Steps in an epoch.
      total_steps: Length of training.
    """
    from mone.evaluation.cost import count_macs
    from mone.evaluation.memory import training_memory

    device, accum = jax.devices()[0], config.optimizer.accum_steps
    yield parameter_table(params)
    yield (
        f"devices: {mesh.size} x {device.device_kind} on {jax.process_count()} host(s), mesh "
        + " x ".join(f"{name} {size}" for name, size in mesh.shape.items())
    )
    yield (
        f"batch: {config.batch_size} images = {mesh.size} device(s) x {accum} micro-batch(es) x "
        f"{config.batch_size // mesh.size // accum}"
    )
    yield (
        f"length: {total_steps} steps = {total_steps / steps_per_epoch:.4g} epochs of "
        f"{steps_per_epoch} steps ({num_train} images)"
    )
    yield "GMAC of an image's forward passes in a step, by effective capacity:"
    for choice in budgets.choices:
        e_c = " + ".join(f"{realised_capacity(cfg, c):.3f}" for c in choice)
        gmac = sum(count_macs(cfg, c).total for c in choice) / 1e9
        yield f"  {e_c}: {gmac:.4g}"
    memory = training_memory(config, budgets.choices[0])
    parts = ", ".join(f"{k} {v / 2**20:.1f}" for k, v in memory.parts().items() if v)
    yield f"memory, estimated, MiB over all devices: {memory.total / 2**20:.1f} ({parts})"
