"""What a run prints: its first lines, then a line of progress. All goes to standard error."""

import datetime
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn


class Reporter:
    """Prints to a terminal with a bar, elsewhere as plain lines."""

    def __init__(self, total_steps: int, *, quiet: bool = False):
        """Set up the output.

        Args:
          total_steps: Length of training.
          quiet: Print nothing (on all hosts but the first).
        """
        self._total = total_steps
        self._quiet = quiet
        self._console = Console(stderr=True)
        self._bar: Progress | None = None

    def line(self, text: str) -> None:
        """Print text as it is."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def progress(self, step: int, loss: float, rate: float, eta: float) -> None:
        """Show how far training is.

        Args:
          step: Steps completed.
          loss: Mean training loss since the last time.
          rate: Images a second.
          eta: Seconds that remain.
        """
        if self._quiet:
            return
        remaining = datetime.timedelta(seconds=round(eta))
        text = f"loss {loss:.4f}  {rate:,.0f} images/s  ETA {remaining}"
        if not self._console.is_terminal:
            share = 100 * step / self._total
            self.line(f"step {step}/{self._total} ({share:.0f} %)  {text}")
            return
        if self._bar is None:
            self._bar = Progress(
                TextColumn("step {task.completed}/{task.total}"),
                BarColumn(),
                TextColumn("{task.description}"),
                console=self._console,
            )
            self._bar.start()
            self._bar.add_task(text, total=self._total)
        self._bar.update(self._bar.task_ids[0], completed=step, description=text)

    def close(self) -> None:
        """Leave the terminal in order."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class Speed:
    """Images a second and time to go, without the time spent on compiling or evaluating."""

    def __init__(self, batch_size: int):
        self._batch_size = batch_size
        self._start = time.monotonic()
        self._idle = 0.0
        self._steps = 0
        self.seconds_per_step = 0.0

    def step(self) -> None:
        """Count a completed step."""
        self._steps += 1

    def idle(self, seconds: float) -> None:
        """Leave out time in which no step ran."""
        self._idle += seconds

    def lap(self) -> float:
        """Return images a second since the last lap."""
        now = time.monotonic()
        busy = max(now - self._start - self._idle, 1e-9)
        self.seconds_per_step = busy / max(self._steps, 1)
        rate = self._steps * self._batch_size / busy
        self._start, self._idle, self._steps = now, 0.0, 0
        return rate
