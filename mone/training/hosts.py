"""Several processes that train one model: they join, decide alike, and fail together.

Each process drives its own devices and runs the same program. A decision that only one of them
takes, or an error that only one of them sees, would leave the others waiting for ever in the next
collective operation; so decisions come from the first process, and errors are told to all.
"""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from mone.errors import ConfigError, UserError

AUTO = "auto"


class OtherHostError(UserError):
    """Another process of this run cannot go on; the message is the other's."""


def connect(address: str) -> None:
    """Join the processes of one run; to be called before anything asks for a device.

    Args:
      address: "auto" finds the others by itself (Cloud TPU, Slurm, Open MPI, Kubernetes);
        "HOST:PORT,PROCESSES,INDEX" names where process 0 listens, how many there are, and which
        one this is.

    Raises:
      ConfigError: The address cannot be used, or the others cannot be reached.
    """
    arguments: dict[str, Any] = {} if address == AUTO else _parse(address)
    try:
        jax.distributed.initialize(**arguments)
    except (RuntimeError, ValueError) as e:
        reason = str(e).strip().splitlines()[0]
        raise ConfigError(
            f"--distributed={address}: cannot join the other processes: {reason}. "
            "Without a cluster that JAX knows, say --distributed=HOST:PORT,PROCESSES,INDEX"
        ) from e


def _parse(address: str) -> dict[str, Any]:
    parts = address.split(",")
    host, _, port = parts[0].rpartition(":")
    numbers = [int(p) if p.isascii() and p.isdecimal() else -1 for p in (port, *parts[1:])]
    if len(parts) != 3 or not host or min(numbers) < 0 or numbers[2] >= numbers[1]:
        raise ConfigError(
            f"--distributed={address}: valid: {AUTO}, or HOST:PORT,PROCESSES,INDEX with INDEX in "
            "0 .. PROCESSES - 1, such as 10.0.0.1:9876,4,0"
        )
    return {
        "coordinator_address": parts[0],
        "num_processes": numbers[1],
        "process_id": numbers[2],
    }


def is_first() -> bool:
    """Return whether this process writes what is written once."""
    return jax.process_index() == 0


def from_first(value: Any) -> Any:
    """Return the first process's value on all of them; JSON-serialisable."""
    if jax.process_count() == 1:
        return value
    from jax.experimental import multihost_utils

    data = np.frombuffer(json.dumps(value).encode(), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(data.size)))
    data = multihost_utils.broadcast_one_to_all(np.resize(data, size))
    return json.loads(np.asarray(data).astype(np.uint8).tobytes())


@contextlib.contextmanager
def same_fate() -> Iterator[None]:
    """Raise on all processes if the body raises a `UserError` on one of them.

    The body must hold no collective operation: the others would wait in it.

    Raises:
      OtherHostError: On those where it did not; with the first one's message.
    """
    own: UserError | None = None
    try:
        yield
    except UserError as e:
        own = e
    others = _gather("" if own is None else str(own) or type(own).__name__)
    if own is not None:
        raise own
    for index, message in enumerate(others):
        if message:
            raise OtherHostError(f"process {index} cannot go on: {message}")


_MESSAGE_BYTES = 4096


def _gather(text: str) -> list[str]:
    """Return every process's text, cut to what fits."""
    if jax.process_count() == 1:
        return [text]
    from jax.experimental import multihost_utils

    row = np.zeros(_MESSAGE_BYTES, np.uint8)
    data = np.frombuffer(text.encode()[:_MESSAGE_BYTES], np.uint8)
    row[: data.size] = data
    rows = np.asarray(multihost_utils.process_allgather(row)).reshape(-1, _MESSAGE_BYTES)
    return [bytes(r).rstrip(b"\0").decode(errors="ignore") for r in rows.astype(np.uint8)]
