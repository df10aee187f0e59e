"""One training step as a pure function, and the cache of its compiled forms.

Axes: B batch, K classes, H W C image, A micro-batches.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from mone.models import ViTConfig, functional
from mone.training import losses
from mone.training.budgets import Budgets
from mone.training.optimiser import ema_update
from mone.training.sharding import replicated
from mone.training.state import TrainState

PyTree = Any
Batch = dict[str, jax.Array]
Metrics = dict[str, jax.Array]
Step = Callable[..., tuple[TrainState, Metrics]]

_COMPILERS = 4  # Threads that compile, at most: each may need much memory.
_STREAM = 0x57E9  # Keeps the keys of the steps apart from those that initialise.


def step_key(seed: int, step: jax.Array | int) -> jax.Array:
    """Return the PRNG key of a step: a function of (seed, step) and nothing else."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), _STREAM), step)


def make_step(
    config: ConfigDict, cfg: ViTConfig, tx: optax.GradientTransformation, *, mixup: bool = False
) -> Step:
    """Return `step(state, batch, budgets) -> (state, metrics)`, pure, with static budgets.

    The loss is the sum over the budgets' forwards. With `budget.distill` = a, each forward but
    the first has `(1 - a) loss(labels) + a loss(first forward's probabilities)`. Micro-batches
    (`optimizer.accum_steps`) run one after another and their gradients are averaged; mixup and
    the update see the whole batch.

    Args:
      config: The whole configuration; reads `seed`, `loss`, `budget` and `optimizer`.
      cfg: The model.
      tx: The optimiser, of `make_optimizer`.
      mixup: Whether to mix images; the batch then has "mixup", the coefficient (float32 scalar).

    Returns:
      The step. Its batch has "image" float32 [B, H, W, C] and "label" int32 [B]; its metrics are
      float32 scalars: "loss", "grad_norm" (before clipping) and "param_norm" (after the update).
    """
    loss_fn = _loss_of(config, cfg)
    accum, ema_decay = config.optimizer.accum_steps, config.optimizer.ema_decay
    num_classes, smoothing = cfg.num_classes, config.loss.label_smoothing

    def step(state: TrainState, batch: Batch, budgets: Budgets) -> tuple[TrainState, Metrics]:
        key = step_key(config.seed, state.step)
        images = batch["image"]
        targets = losses.one_hot_targets(batch["label"], num_classes, smoothing)
        if mixup:
            images, targets = losses.mixup(images, targets, batch["mixup"])
        grad_fn = jax.value_and_grad(lambda p, x, y, key: loss_fn(p, x, y, key, budgets))
        loss, grads = _accumulate(grad_fn, state.params, images, targets, key, accum)
        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        ema = ema_update(state.ema, params, ema_decay, state.step) if ema_decay else state.ema
        metrics = {
            "loss": loss,
            "grad_norm": optax.global_norm(grads),
            "param_norm": optax.global_norm(params),
        }
        return TrainState(state.step + 1, params, opt_state, ema), metrics

    return step


def _loss_of(config: ConfigDict, cfg: ViTConfig) -> Callable[..., jax.Array]:
    """Return the loss of one micro-batch, summed over the budgets."""
    name, distill = config.loss.name, config.budget.distill
    hard = losses.get_loss(name)

    def loss_fn(
        params: PyTree, images: jax.Array, targets: jax.Array, key: jax.Array, budgets: Budgets
    ) -> jax.Array:
        total, teacher = jnp.zeros((), jnp.float32), None
        for i, counts in enumerate(budgets):
            forward_key = jax.random.fold_in(key, i)
            logits, _ = functional.apply(cfg, params, images, counts, key=forward_key, train=True)
            loss = hard(logits, targets)
            if teacher is not None:
                loss = (1.0 - distill) * loss + distill * hard(logits, teacher)
            elif distill > 0:
                teacher = losses.teacher_targets(name, logits)
            total = total + loss
        return total

    return loss_fn


def _accumulate(
    grad_fn: Callable[..., tuple[jax.Array, PyTree]],
    params: PyTree,
    images: jax.Array,
    targets: jax.Array,
    key: jax.Array,
    accum: int,
) -> tuple[jax.Array, PyTree]:
    """Return loss and gradients averaged over `accum` micro-batches of equal size."""
    if accum == 1:
        return grad_fn(params, images, targets, jax.random.fold_in(key, 0))

    def split(x: jax.Array) -> jax.Array:
        # Micro-batch a takes rows a, a + A, ...: each device's rows stay on the device.
        return x.reshape(x.shape[0] // accum, accum, *x.shape[1:]).swapaxes(0, 1)

    def body(total: PyTree, xs: tuple[jax.Array, ...]) -> tuple[PyTree, None]:
        x, y, i = xs
        out = grad_fn(params, x, y, jax.random.fold_in(key, i))
        return jax.tree.map(jnp.add, total, out), None

    zeros = (jnp.zeros((), jnp.float32), jax.tree.map(jnp.zeros_like, params))
    total, _ = jax.lax.scan(body, zeros, (split(images), split(targets), jnp.arange(accum)))
    return jax.tree.map(lambda x: x / accum, total)


class CompiledSteps:
    """Compiles a step once for each tuple of budgets; the state passed in is used up (donated).

    Compilation runs in threads, so that several budgets compile at once, and while others train.

    Attributes:
      memory: Bytes a device needs for the largest executable so far (0 if the backend cannot say).
    """

    def __init__(self, step: Step, abstract: TrainState, batch: PyTree, mesh: Mesh):
        """Set up the cache.

        Args:
          step: Of `make_step`.
          abstract: The state's shapes and shardings.
          batch: Shapes, dtypes and shardings of a global batch.
          mesh: The devices.
        """
        self._abstract = abstract
        self._batch = batch
        self._jit = jax.jit(
            step,
            static_argnums=2,
            donate_argnums=0,
            out_shardings=(jax.tree.map(lambda x: x.sharding, abstract), replicated(mesh)),
        )
        workers = min(_COMPILERS, os.cpu_count() or 1)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="compile")
        self._executables: dict[Budgets, Future] = {}
        self.memory = 0

    def prepare(self, budgets: Budgets) -> None:
        """Begin to compile the step for these budgets, unless that has begun."""
        if budgets not in self._executables:
            self._executables[budgets] = self._threads.submit(self._compile, budgets)

    def wait(self, budgets: Budgets) -> float:
        """Wait until the step for these budgets is compiled; return the seconds waited."""
        self.prepare(budgets)
        start = time.monotonic()
        self._executables[budgets].result()
        return time.monotonic() - start

    def __call__(
        self, state: TrainState, batch: Batch, budgets: Budgets
    ) -> tuple[TrainState, Metrics]:
        """Run one step; returns before the devices have finished it."""
        self.prepare(budgets)
        return self._executables[budgets].result()(state, batch)

    def close(self) -> None:
        """Give up what has not begun to compile."""
        self._threads.shutdown(cancel_futures=True)

    def _compile(self, budgets: Budgets) -> Any:
        compiled = self._jit.lower(self._abstract, self._batch, budgets).compile()
        self.memory = max(self.memory, _memory_bytes(compiled))
        return compiled


def _memory_bytes(compiled: Any) -> int:
    analysis = compiled.memory_analysis()
    if analysis is None:
        return 0
    return (
        analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        + analysis.temp_size_in_bytes
        - analysis.alias_size_in_bytes
    )
