"""Checkpoints with Orbax: written in the background, complete or not there at all.

A checkpoint of step t (t steps completed) holds four items, so that a reader takes only what it
needs: "params", "ema" (if averages are kept), "optimizer" (optimiser state and step) and "host"
(JSON: the data iterator's state and what the loop keeps). Orbax writes under a temporary name and
renames when all is written; a process killed meanwhile leaves the one before as the newest.
"""

import copy
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from mone.errors import CheckpointError
from mone.training.state import TrainState

PyTree = Any
DIRECTORY = "checkpoints"


def directory(workdir: str | Path) -> Path:
    """Return where a work directory keeps its checkpoints, as an absolute path."""
    return Path(workdir).absolute() / DIRECTORY


class Checkpoints:
    """The checkpoints of one run, for the process that trains."""

    def __init__(self, workdir: str | Path, keep: int):
        """Open the directory, make it if needed, and remove what a killed save left behind.

        Args:
          workdir: The run's directory.
          keep: How many of the newest checkpoints to keep.
        """
        self._path = directory(workdir)
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep, cleanup_tmp_directories=True, enable_async_checkpointing=True
        )
        self._manager = ocp.CheckpointManager(self._path, options=options)

    def latest_step(self) -> int | None:
        """Return the newest complete step, None if there is none."""
        return self._manager.latest_step()

    def save(self, state: TrainState, step: int, host: dict[str, Any]) -> None:
        """Start to save; state and host data may be donated or changed as soon as this returns.

        Args:
          state: After `step` steps.
          step: Name of the checkpoint.
          host: JSON-serialisable.
        """
        items = {
            "params": ocp.args.StandardSave(state.params),
            "optimizer": ocp.args.StandardSave({"state": state.opt_state, "step": state.step}),
            # A copy: it is written in the background, while training changes the original.
            "host": ocp.args.JsonSave(copy.deepcopy(host)),
        }
        if state.ema:
            items["ema"] = ocp.args.StandardSave(state.ema)
        self._manager.save(step, args=ocp.args.Composite(**items), force=True)

    def restore(self, abstract: TrainState, step: int) -> tuple[TrainState, dict[str, Any]]:
        """Return state and host data of a step.

        Args:
          abstract: Shapes, dtypes and shardings wanted; the devices may be others than those
            that wrote the checkpoint.
          step: One that exists.

        Raises:
          CheckpointError: If it cannot be read.
        """
        restore = ocp.args.StandardRestore
        items = {
            "params": restore(abstract.params),
            "optimizer": restore({"state": abstract.opt_state, "step": abstract.step}),
            "host": ocp.args.JsonRestore(),
        }
        if abstract.ema:
            items["ema"] = restore(abstract.ema)
        try:
            out = self._manager.restore(step, args=ocp.args.Composite(**items))
        except Exception as e:
            raise CheckpointError(
                f"{_unreadable(self._path / str(step), e)}. If it is damaged, delete that "
                "directory and start again: training goes on from the checkpoint before it"
            ) from e
        optimizer = out["optimizer"]
        if int(optimizer["step"]) != step:
            raise CheckpointError(
                f"{self._path / str(step)} says that it was written after step "
                f"{int(optimizer['step'])}: the directory was renamed or is damaged"
            )
        state = TrainState(
            optimizer["step"], out["params"], optimizer["state"], out.get("ema") or {}
        )
        return state, out["host"]

    def check(self) -> None:
        """Raise what went wrong in a save in the background, if anything did."""
        try:
            self._manager.check_for_errors()
        except Exception as e:
            raise CheckpointError(f"could not save a checkpoint in {self._path}: {e}") from e

    def wait(self) -> None:
        """Wait until the save in the background is complete, and raise what went wrong."""
        try:
            self._manager.wait_until_finished()
        except Exception as e:
            raise CheckpointError(f"could not save a checkpoint in {self._path}: {e}") from e

    def close(self) -> None:
        """Finish the save in the background and let go of the directory."""
        self._manager.close()


def complete_steps(workdir: str | Path) -> list[int]:
    """Return the steps of all complete checkpoints, ascending, without touching any."""
    path = directory(workdir)
    return sorted(ocp.utils.checkpoint_steps(path)) if path.is_dir() else []


def read_params(
    workdir: str | Path, *, step: int | None = None, ema: bool = True
) -> tuple[int, PyTree]:
    """Read the parameters of a checkpoint, and nothing else of it.

    Args:
      workdir: The run's directory, which may be in use by a run in progress.
      step: Which checkpoint; None: the newest.
      ema: Take the averaged parameters, if the run keeps any.

    Returns:
      The step and the parameters on one device, whatever they are: see `compare_params`.

    Raises:
      CheckpointError: If there is no such checkpoint or it cannot be read.
    """
    steps = complete_steps(workdir)
    if not steps:
        raise CheckpointError(f"no complete checkpoint in {directory(workdir)}")
    step = steps[-1] if step is None else step
    if step not in steps:
        raise CheckpointError(
            f"no checkpoint of step {step} in {directory(workdir)}; "
            f"there are: {', '.join(map(str, steps))}"
        )
    path = directory(workdir) / str(step)
    item = path / "ema" if ema and (path / "ema").is_dir() else path / "params"
    handler = ocp.StandardCheckpointHandler()
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    try:
        target = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
            handler.metadata(item).tree,
        )
        return step, handler.restore(item, args=ocp.args.StandardRestore(target))
    except Exception as e:
        raise _unreadable(item, e) from e
    finally:
        handler.close()


def compare_params(expected: PyTree, found: PyTree) -> tuple[list[str], list[str], list[str]]:
    """Compare two nested dicts of arrays by name and shape.

    Returns:
      Names that are missing from `found`, names that only `found` has, and a sentence for each
      whose shapes differ.
    """
    a, b = flatten(expected), flatten(found)
    shapes = [
        f"{k}: {tuple(b[k].shape)} in the checkpoint, {tuple(a[k].shape)} in the model"
        for k in a
        if k in b and tuple(a[k].shape) != tuple(b[k].shape)
    ]
    return [k for k in a if k not in b], [k for k in b if k not in a], shapes


def flatten(params: PyTree) -> dict[str, Any]:
    """Return a nested dict as a flat one with names like "blocks/mlp/kernel"."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {"/".join(str(p.key) for p in path): leaf for path, leaf in leaves}


def _unreadable(path: Path, error: Exception) -> CheckpointError:
    reason = str(error).strip().splitlines() or [type(error).__name__]
    return CheckpointError(f"cannot read the checkpoint {path}: {reason[0]}")
