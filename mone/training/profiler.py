"""A profile of early steps, for TensorBoard or Perfetto."""

from pathlib import Path
from typing import Any

import jax

_SKIP = 10  # Steps before the profile, if training is long enough: they compile and warm up.


class Profiler:
    """Records `num_steps` steps, once a start of training."""

    def __init__(self, path: Path, num_steps: int, first: int, total_steps: int):
        """Choose the steps.

        Args:
          path: Directory for the profile.
          num_steps: Steps to record; 0: none.
          first: Steps completed before this start.
          total_steps: Length of training.
        """
        left = total_steps - first
        num_steps = min(num_steps, left)
        self._path = str(path)
        self._begin = first + 1 + min(_SKIP, left - num_steps) if num_steps else 0
        self._end = self._begin + num_steps - 1
        self._active = False

    def before(self, step: int) -> None:
        """Begin to record if this step is the first to be recorded."""
        if self._begin and step == self._begin:
            jax.profiler.start_trace(self._path)
            self._active = True

    def after(self, step: int, outputs: Any) -> None:
        """Stop after the last step to be recorded, once its outputs are there."""
        if self._active and step >= self._end:
            jax.block_until_ready(outputs)
            self.close()

    def close(self) -> None:
        """Stop recording."""
        if self._active:
            self._active = False
            jax.profiler.stop_trace()
