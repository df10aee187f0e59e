"""All that we use of `clu`, which is frozen upstream: its parameter table and TensorBoard writer.

`clu.metric_writers` imports TensorFlow, which takes seconds; so the import and all writing happen
in a thread of their own, off the path of training.
"""

import os
import time
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

    def __init__(self, logdir: Path, step: int = 0):
        """Start the thread; files go to `logdir`.

        Args:
          logdir: Directory.
          step: The run continues after this step: points of later steps that an interrupted run
            left in `logdir` are not shown any more.
        """
        self._logdir, self._step = str(logdir), step
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

            _mark_start(self._logdir, self._step + 1)
            self._writer = metric_writers.SummaryWriter(self._logdir)
        self._writer.write_scalars(step, scalars)
        self._writer.flush()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _mark_start(logdir: str, step: int) -> None:
    """Tell TensorBoard to drop the points from `step` on that an earlier start left.

    It takes the first mark of a directory for no restart, so each start needs one.
    """
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(logdir)
    start = SessionLog(status=SessionLog.START)
    writer.add_event(Event(wall_time=time.time(), step=step, session_log=start))
    writer.close()
