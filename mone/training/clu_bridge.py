"""All that we use of `clu`, which is frozen upstream: its parameter table and TensorBoard writer.

`clu.metric_writers` imports TensorFlow, which takes seconds; so the import and all writing happen
in a thread of their own, off the path of training.
"""

import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from clu import parameter_overview


def parameter_table(params: Any) -> str:
    """Return a table of names, shapes, dtypes and sizes, with the total.

    Args:
      params: Nested dict of arrays or `jax.ShapeDtypeStruct`.
    """
    return parameter_overview.get_parameter_overview(params, include_stats=False)


class TensorBoardWriter:
    """Writes scalars to TensorBoard files in a thread."""

    def __init__(self, logdir: Path):
        """Start the thread; files go to `logdir`."""
        self._logdir = str(logdir)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tensorboard")
        self._writer: Any = None
        self._last: Future | None = None

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Queue scalars of a step; raises what went wrong in an earlier write."""
        if self._last is not None and self._last.done():
            self._last.result()
        self._last = self._thread.submit(self._write, step, dict(scalars))

    def close(self) -> None:
        """Write what is queued and close the file; raises what went wrong."""
        last = self._thread.submit(self._close)
        self._thread.shutdown(wait=True)
        last.result()

    def _write(self, step: int, scalars: dict[str, float]) -> None:
        if self._writer is None:
            os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # Else TensorFlow talks about it.
            from clu import metric_writers

            self._writer = metric_writers.SummaryWriter(self._logdir)
        self._writer.write_scalars(step, scalars)
        self._writer.flush()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
