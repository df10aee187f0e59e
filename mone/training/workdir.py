"""The work directory: one run, one configuration.

It holds config.json, checkpoints/, metrics.jsonl and TensorBoard's files. Running the same
command again resumes; another configuration is refused, so that nothing is overwritten.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from mone import config as config_lib
from mone.errors import CheckpointError, ConfigError
from mone.models import functional, vit_config
from mone.training import checkpoints, hosts

PyTree = Any
CONFIG = "config.json"

# Fields that say how a run is carried out, not what it computes. (On another mesh, sums are made
# in another order: then the result is equal up to rounding only. Data that has moved must be the
# same data: the number of its images is checked.)
MAY_CHANGE = (
    "log_every",
    "eval_every",
    "profile_steps",
    "checkpoint.every",
    "checkpoint.keep",
    "data.path",
    "data.threads",
    "data.prefetch",
    "mesh.data",
    "mesh.fsdp",
)

# Sections that say how a trained model is evaluated, and nothing about the model itself.
EVALUATION = ("data", "eval")


def write_atomic(path: Path, text: str) -> None:
    """Write a file that is never seen half-written, even if the process is killed."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "w", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.replace(temporary, path)


def check(config: ConfigDict, workdir: Path) -> None:
    """Check that a directory can be this run's, without touching it.

    Raises:
      ConfigError: If the directory belongs to a run with another configuration; lists the fields
        that differ.
      CheckpointError: If it has checkpoints but no configuration.
    """
    path = workdir / CONFIG
    if path.exists():
        differing = differences(read_config(workdir), config)
        if differing:
            raise ConfigError(
                f"{workdir} holds a run with another configuration; choose another directory, or "
                "set back (there -> here): " + "; ".join(differing)
            )
    elif checkpoints.complete_steps(workdir):
        raise CheckpointError(f"{workdir} has checkpoints but no {CONFIG}: not a run to resume")


def check_same(first: ConfigDict, config: ConfigDict) -> None:
    """Check that this process trains what the first process of the run trains.

    Raises:
      ConfigError: If not; lists the fields that differ.
    """
    if differing := differences(first, config):
        raise ConfigError(
            "all processes of a run must have the same configuration; this one differs from the "
            "first (there -> here): " + "; ".join(differing)
        )


def claim(config: ConfigDict, workdir: Path) -> None:
    """Write config.json, into a directory that this process has locked.

    Raises:
      ConfigError, CheckpointError: See `check`: another process may have been faster.
    """
    check(config, workdir)
    if hosts.is_first():
        write_atomic(workdir / CONFIG, config_lib.to_json(config))


@contextlib.contextmanager
def lock(workdir: Path) -> Iterator[None]:
    """Keep other processes on this machine from training in the same directory.

    The system lets go of the lock when the process ends, however it ends.

    Raises:
      ConfigError: If another process is at work there, or nothing can be written there.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        (workdir / ".lock").touch()
    except OSError as e:
        raise ConfigError(f"workdir={workdir} cannot be used: {e.strerror}") from e
    with open(workdir / ".lock", "w", encoding="utf-8") as f:
        if hosts.is_first():
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"another process is training in {workdir}") from None
        yield


def read_config(workdir: str | Path) -> ConfigDict:
    """Return the configuration of the run in a work directory.

    Raises:
      CheckpointError: If there is none, or it cannot be read.
    """
    path = Path(workdir) / CONFIG
    try:
        return config_lib.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{workdir} is no work directory: it has no {CONFIG}") from None
    except (OSError, ValueError) as e:
        raise CheckpointError(f"cannot read {path}: {e}") from e


def differences(there: ConfigDict, here: ConfigDict) -> list[str]:
    """Return "field: value there -> value here" for fields that differ and may not."""
    a, b = _flat(there), _flat(here)
    return [
        f"{k}: {a.get(k, '(none)')!r} -> {b.get(k, '(none)')!r}"
        for k in sorted(a.keys() | b.keys())
        if k not in MAY_CHANGE and a.get(k, _ABSENT) != b.get(k, _ABSENT)
    ]


_ABSENT = object()


def _flat(config: ConfigDict, prefix: str = "") -> dict[str, Any]:
    out = {}
    for k, v in config.items():
        if isinstance(v, ConfigDict):
            out |= _flat(v, f"{prefix}{k}.")
        else:
            out[prefix + k] = v
    return out


def load_trained(
    workdir: str | Path,
    *,
    step: int | None = None,
    ema: bool | None = None,
    overrides: Sequence[str] = (),
) -> tuple[ConfigDict, PyTree]:
    """Return configuration and parameters of a run, finished or in progress.

    Args:
      workdir: The run's directory.
      step: Which checkpoint; None: the newest.
      ema: Take the averaged parameters, if the run keeps any; None: as `eval.ema` says.
      overrides: `field.sub=value` strings for fields of `data` and `eval`, so that a model can
        be evaluated on data that lies elsewhere, on another split and so on.

    Returns:
      The configuration, and the parameters as a nested dict of float32 arrays on one device.

    Raises:
      CheckpointError: If the directory is no run, has no such complete checkpoint, or the
        checkpoint does not fit the configuration's model (all mismatches listed).
      ConfigError: If an override cannot be used.
    """
    config = config_lib.override(read_config(workdir), overrides, sections=EVALUATION)
    if overrides:
        config_lib.validate(config)
    ema = config.eval.ema if ema is None else ema
    cfg = vit_config(config.model)
    expected = functional.abstract_params(cfg)
    step, params = checkpoints.read_params(workdir, step=step, ema=ema)
    missing, extra, shapes = checkpoints.compare_params(expected, params)
    problems = [f"{k}: not in the checkpoint" for k in missing]
    problems += [f"{k}: not in the model" for k in extra] + shapes
    if problems:
        raise CheckpointError(
            f"checkpoint {step} in {workdir} does not fit its model:\n  " + "\n  ".join(problems)
        )
    return config, params
