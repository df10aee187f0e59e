"""The training loop: the host draws budgets and batches, the devices compute, nobody waits.

The host runs a few steps ahead of the devices and reads a step's metrics when they are ready, so
that checking the loss and logging cost no synchronisation. Everything random is a function of
(seed, step); a checkpoint of step t holds what t steps have left behind; so a run that is killed
and started again computes what it would have computed.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from mone import config as config_lib
from mone.data import TrainBatches, eval_batches, mixup_p, train_batches
from mone.errors import UserError
from mone.models import functional, realised_capacity, vit_config
from mone.training import hosts
from mone.training import workdir as workdir_lib
from mone.training.budgets import Budgets, BudgetSchedule
from mone.training.checkpoints import Checkpoints, complete_steps
from mone.training.clu_bridge import TensorBoardWriter
from mone.training.losses import mixup_coefficient
from mone.training.metrics_log import MetricsLog, Record
from mone.training.optimiser import make_optimizer, make_schedule, run_length, warmup_length
from mone.training.overview import overview
from mone.training.profiler import Profiler
from mone.training.progress import Reporter, Speed
from mone.training.sharding import batch_sharding, check_batch, make_mesh, put_batch, replicated
from mone.training.state import TrainState, abstract_state, init_state
from mone.training.step import CompiledSteps, make_step
from mone.training.transfer import start_params

_IN_FLIGHT = 2  # Steps whose metrics the host has not read yet.


class NonFiniteError(UserError, FloatingPointError):
    """The loss, a gradient or a parameter is no longer a finite number."""


def train(
    config: ConfigDict,
    workdir: str | Path,
    *,
    on_progress: Callable[[Record], None] | None = None,
) -> Record:
    """Train the model that a configuration describes, or go on with it.

    Started again on the same directory, it continues from the newest checkpoint and ends with the
    same parameters, bit for bit, as a run that was never interrupted (on the same devices and
    versions); a run that is complete is only reported again.

    Args:
      config: See configs/base.py.
      workdir: Directory of this run: config.json, checkpoints/, metrics.jsonl, TensorBoard files.
      on_progress: Called with each record that is written to metrics.jsonl.

    Returns:
      The last evaluation: "step", "accuracy" and "loss", both by effective capacity ("0.5"), and
      "num_examples" and "unreadable".

    Raises:
      ConfigError: The configuration cannot be used, or `workdir` holds a run with another one.
      DataError: The data is missing or unreadable.
      CheckpointError: A checkpoint cannot be read or written.
      OtherHostError: Another host of the same run cannot start.
      NonFiniteError: Training diverged; says at which step. The checkpoints before it stay.
    """
    config_lib.validate(config)
    with contextlib.ExitStack() as stack:
        return _Run(config, Path(workdir), on_progress, stack).run()


class _Run:
    """One call of `train`."""

    def __init__(
        self,
        config: ConfigDict,
        workdir: Path,
        on_progress: Callable[[Record], None] | None,
        stack: contextlib.ExitStack,
    ):
        """Check everything that can be checked before anything is written; then open files."""
        self.config, self.workdir, self.on_progress = config, workdir, on_progress
        first = hosts.from_first(config_lib.to_json(config))
        with hosts.same_fate():
            workdir_lib.check_same(config_lib.from_json(first), config)
            self._prepare(stack)
        self._open(stack)

    def _prepare(self, stack: contextlib.ExitStack) -> None:
        """Do what may fail on one host alone, and needs no other."""
        from mone.evaluation.budgets import evaluation_budgets

        config, workdir = self.config, self.workdir
        self.cfg = vit_config(config.model)
        self.mesh = make_mesh(config)
        check_batch(config, self.mesh)
        self.eval_budgets = evaluation_budgets(config)
        part = {"process_index": jax.process_index(), "process_count": jax.process_count()}
        self.batches: TrainBatches = train_batches(config, **part)
        stack.callback(self.batches.close)
        self.eval_batches = eval_batches(config, **part)
        self.total_steps = run_length(config, self.batches.steps_per_epoch)
        self.schedule = make_schedule(
            config.optimizer.schedule,
            self.total_steps,
            warmup_length(config, self.batches.steps_per_epoch),
        )
        self.budgets = BudgetSchedule(config, self.cfg, self.total_steps)
        self.tx = make_optimizer(config, self.schedule)
        self.transfer: tuple[Any, tuple[str, ...]] | None = None
        if config.checkpoint.init_from and not complete_steps(workdir):
            fresh = functional.init(self.cfg, config.seed)
            self.transfer = start_params(config.checkpoint.init_from, self.cfg, fresh)
        workdir_lib.check(config, workdir)
        stack.enter_context(workdir_lib.lock(workdir))
        workdir_lib.claim(config, workdir)

    def _open(self, stack: contextlib.ExitStack) -> None:
        self.reporter = Reporter(self.total_steps, quiet=not hosts.is_first())
        stack.callback(self.reporter.close)
        self.checkpoints = Checkpoints(self.workdir, self.config.checkpoint.keep)
        stack.callback(self.checkpoints.close)
        self.saved_step = hosts.from_first(self.checkpoints.latest_step())
        self.log: MetricsLog | None = None
        self.tensorboard: TensorBoardWriter | None = None
        if hosts.is_first():
            self.log = MetricsLog(self.workdir / "metrics.jsonl", self.saved_step or 0)
            stack.callback(self.log.close)
            self.tensorboard = TensorBoardWriter(self.workdir, self.saved_step or 0)
            stack.callback(self.tensorboard.close)
        self.speed = Speed(self.config.batch_size)
        self.pending: deque[tuple[int, Any]] = deque()
        self.ready: set[Budgets] = set()  # Those whose step is compiled.
        self.losses: list[float] = []  # Of the steps since the last train record.

    def run(self) -> Record:
        """Train what is left, evaluate, and return the last evaluation."""
        for line in self._overview():
            self.reporter.line(line)
        state = self._start()
        first = int(state.step)
        if first < self.total_steps:
            state = self._train(state, first)
        record = self._evaluate(state, self.total_steps)
        self.checkpoints.wait()
        return record

    def _overview(self) -> Iterator[str]:
        return overview(
            self.config,
            self.cfg,
            self.mesh,
            functional.abstract_params(self.cfg),
            self.budgets,
            num_train=self.batches.num_train,
            steps_per_epoch=self.batches.steps_per_epoch,
            total_steps=self.total_steps,
        )

    def _start(self) -> TrainState:
        """Return the state to go on from: the newest checkpoint's, else a new one."""
        config, ema = self.config, self.config.optimizer.ema_decay > 0
        self.abstract = abstract_state(self.cfg, self.tx, self.mesh, ema=ema)
        if self.saved_step is not None:
            state, host = self.checkpoints.restore(self.abstract, self.saved_step)
            self.batches.set_state(host["data"])
            self.losses = host["losses"]
            self.reporter.line(f"resuming after step {self.saved_step}")
            return state
        source, (params, notes) = config.checkpoint.init_from, self.transfer or (None, ())
        self.transfer = None  # Lets go of the copy on the host.
        state = init_state(self.cfg, self.tx, self.mesh, seed=config.seed, ema=ema, params=params)
        if source:
            for line in (f"parameters from {source}", *notes):
                self.reporter.line(line)
            self._save(state, 0)  # From here on the run does not depend on the other directory.
        return state

    def _train(self, state: TrainState, first: int) -> TrainState:
        """Run steps first + 1 ... total_steps; all of it is checked and saved on return."""
        config = self.config
        step_fn = make_step(config, self.cfg, self.tx, mixup=mixup_p(config.data) > 0)
        steps = CompiledSteps(step_fn, self.abstract, self._batch_shapes(), self.mesh)
        profiler = Profiler(self.workdir / "profile", config.profile_steps, first, self.total_steps)
        with contextlib.closing(steps), contextlib.closing(profiler):
            for budgets in self.budgets.upcoming(first):
                steps.prepare(budgets)
            if first and config.eval_every and first % config.eval_every == 0:
                self._evaluate(state, first)  # Due when the run was stopped after this step's save.
            self.speed.lap()  # Start-up is not training.
            for step in range(first + 1, self.total_steps + 1):
                budgets = self.budgets(step - 1)
                self._wait_for(steps, budgets)
                profiler.before(step)
                batch = self._next_batch(step)
                state, metrics = steps(state, batch, budgets)
                self.pending.append((step, metrics))
                self._drain(_IN_FLIGHT)
                profiler.after(step, metrics)
                last = step == self.total_steps
                if last or step % config.checkpoint.every == 0:
                    self._save(state, step)
                if not last and config.eval_every and step % config.eval_every == 0:
                    self._evaluate(state, step)
        return state

    def _next_batch(self, step: int) -> dict[str, jax.Array]:
        """Return the batch of a step, with mixup's coefficient if images are mixed."""
        batch, p = next(self.batches), mixup_p(self.config.data)
        if p > 0:
            batch = {**batch, "mixup": mixup_coefficient(self.config.seed, step, p)}
        return put_batch(batch, self.mesh)

    def _batch_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        c, B, split = self.cfg, self.config.batch_size, batch_sharding(self.mesh)
        shapes = {
            "image": jax.ShapeDtypeStruct(
                (B, *c.image_size, c.channels), np.float32, sharding=split
            ),
            "label": jax.ShapeDtypeStruct((B,), np.int32, sharding=split),
        }
        if mixup_p(self.config.data) > 0:
            whole = replicated(self.mesh)
            shapes["mixup"] = jax.ShapeDtypeStruct((), np.float32, sharding=whole)
        return shapes

    def _wait_for(self, steps: CompiledSteps, budgets: Budgets) -> None:
        if budgets in self.ready:
            return
        self.ready.add(budgets)
        seconds = steps.wait(budgets)
        self.speed.idle(seconds)
        e_c = " + ".join(f"{realised_capacity(self.cfg, c):.3f}" for c in budgets)
        self.reporter.line(
            f"compiled the step at e_c {e_c} ({seconds:.1f} s of waiting); "
            f"the largest so far takes {steps.memory / 2**20:.0f} MiB a device"
        )

    def _drain(self, keep: int) -> None:
        """Read, check and log the metrics of all steps but the last `keep`."""
        while len(self.pending) > keep:
            step, metrics = self.pending.popleft()
            values = {k: float(v) for k, v in jax.device_get(metrics).items()}
            if not all(np.isfinite(v) for v in values.values()):
                self._stop(step, values)
            self.losses.append(values.pop("loss"))
            self.speed.step()
            if step % self.config.log_every == 0 or step == self.total_steps:
                self._log_train(step, values)

    def _stop(self, step: int, values: Record) -> None:
        found = ", ".join(f"{k} = {v:.6g}" for k, v in values.items())
        saved = self.saved_step
        raise NonFiniteError(
            f"step {step}: {found}; training has diverged and was stopped. "
            + (f"The checkpoint of step {saved} is kept. " if saved is not None else "")
            + "Try a lower optimizer.learning_rate, a longer warm-up or optimizer.clip_norm, "
            "in a new directory."
        )

    def _log_train(self, step: int, values: Record) -> None:
        loss, rate = float(np.mean(self.losses)), self.speed.lap()
        self.losses = []
        eta = (self.total_steps - step) * self.speed.seconds_per_step
        self.reporter.progress(step, loss, rate, eta)
        learning_rate = self.config.optimizer.learning_rate * float(self.schedule(step - 1))
        values |= {"learning_rate": learning_rate, "epoch": step / self.batches.steps_per_epoch}
        self._record("train", step, {"loss": loss, **values, "images_per_second": rate})
        self.checkpoints.check()

    def _record(self, kind: str, step: int, values: Record) -> Record:
        """Write a record everywhere."""
        record = {"step": step, "kind": kind, **values}
        if self.log is not None:
            self.log.write(kind, step, values)
        if self.tensorboard is not None:
            self.tensorboard.write(step, dict(_scalars(values, f"{kind}/")))
        if self.on_progress is not None:
            self.on_progress(record)
        return record

    def _save(self, state: TrainState, step: int) -> None:
        """Save a state that is known to be finite."""
        self._drain(0)
        before = time.monotonic()
        self.checkpoints.save(
            state, step, {"data": self.batches.get_state(), "losses": self.losses}
        )
        self.saved_step = step
        self.speed.idle(time.monotonic() - before)

    def _evaluate(self, state: TrainState, step: int) -> Record:
        """Score the model at every budget, unless the log has it already; return the record."""
        from mone.evaluation.accuracy import evaluate

        found = hosts.from_first(self.log.find("eval", step) if self.log is not None else None)
        if found is not None:
            return found
        self._drain(0)
        before = time.monotonic()
        params = state.ema if state.ema and self.config.eval.ema else state.params
        scores = {
            f"{e_c:g}": evaluate(
                self.config,
                params,
                counts=counts,
                batches=self.eval_batches,
                router=self.config.eval.router,
                key_seed=self.config.seed,
            )
            for e_c, counts in self.eval_budgets.items()
        }
        values: Record = {k: {e_c: s[k] for e_c, s in scores.items()} for k in ("accuracy", "loss")}
        any_budget = next(iter(scores.values()))
        values |= {k: any_budget[k] for k in ("num_examples", "unreadable")}
        text = ", ".join(f"{100 * v:.2f} % at {e_c}" for e_c, v in values["accuracy"].items())
        self.reporter.line(f"step {step}: accuracy by e_c: {text}")
        self.speed.idle(time.monotonic() - before)
        return self._record("eval", step, values)


def _scalars(values: Record, prefix: str) -> Iterator[tuple[str, float]]:
    for k, v in values.items():
        if isinstance(v, dict):
            yield from _scalars(v, f"{prefix}{k}/")
        else:
            yield prefix + k, v
