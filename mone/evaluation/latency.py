"""Throughput on this machine: all models and budgets side by side, in one run.

Machines drift by tens of per cent, so what is compared is measured interleaved: each round times
every program once, in a fresh order, and the medians over the rounds are reported. Programs are
compiled ahead and warmed up; images are random and already on the device, so data loading is
not in the time.

Axes: B images of a batch.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mone.errors import ConfigError
from mone.evaluation.cost import count_macs, dense_fields
from mone.models import ViTConfig, full_counts, functional

_WARM_UP = 5


@dataclasses.dataclass(frozen=True)
class Program:
    """A model at one budget, to be timed."""

    cfg: ViTConfig
    params: Any  # Nested dictionary of arrays; None: initialised (values do not matter here).
    counts: tuple[int, ...] | None  # None: full width.


@dataclasses.dataclass(frozen=True)
class Timing:
    """The measured speed of one program at one batch size, beside the dense ViT's."""

    batch_size: int
    milliseconds: float  # Median time of a forward pass of the batch.
    images_per_second: float  # batch_size / median time.
    spread: float  # Interquartile range of the times, as a share of their median.
    speed_up: float  # Median time of the compiled dense ViT / median time.
    mac_ratio: float  # MACs of the dense ViT / MACs: the speed-up that would be ideal.
    share_of_mac_ratio: float  # speed_up / mac_ratio.


def measure_throughput(
    programs: Mapping[Any, Program],
    *,
    batch_sizes: Sequence[int] = (1, 8, 64),
    rounds: int = 15,
    min_seconds: float = 0.02,
    seed: int = 0,
    on_progress: Callable[[str], None] | None = None,
) -> dict[Any, dict[int, Timing]]:
    """Time the forward pass of every program beside the dense ViT of the same sizes.

    Args:
      programs: What to time, by any name; programs that differ in their weights only, the dense
        ViT among them, are timed once and get the same figures.
      batch_sizes: Images a batch.
      rounds: How often each program is timed; the order within a round is drawn anew.
      min_seconds: A timing repeats the forward pass until it lasts about this long.
      seed: Seed of the order and of the images.
      on_progress: Called with a line of text for each batch size.

    Returns:
      {name: {batch size: Timing}}.

    Raises:
      ConfigError: A batch size or `rounds` is not positive.
    """
    for name, values in (("batch_sizes", batch_sizes), ("rounds", [rounds])):
        if not values or min(values) < 1:
            raise ConfigError(f"{name} = {values}: must be positive.")
    keys = {name: _key(program.cfg, program.counts) for name, program in programs.items()}
    dense = {name: _key(_dense(program.cfg), None) for name, program in programs.items()}
    to_time = {key: Program(key[0], None, None) for key in dense.values()}
    to_time |= {keys[name]: program for name, program in programs.items()}
    params = _Parameters()
    result: dict[Any, dict[int, Timing]] = {name: {} for name in programs}
    for size in batch_sizes:
        if on_progress:
            on_progress(f"timing {len(to_time)} programs at batch size {size}")
        calls = {key: _compile(p, params(p), size, seed) for key, p in to_time.items()}
        times = interleaved_times(calls, rounds=rounds, min_seconds=min_seconds, seed=seed)
        for name, program in programs.items():
            result[name][size] = _timing(program, size, times[keys[name]], times[dense[name]])
    return result


def interleaved_times(
    calls: Mapping[Any, Callable[[], Any]], *, rounds: int, min_seconds: float, seed: int = 0
) -> dict[Any, list[float]]:
    """Time each call once a round, in a fresh order each round.

    Args:
      calls: Functions that run one computation to its end.
      rounds: Number of rounds.
      min_seconds: A timing repeats its call until it lasts about this long.
      seed: Seed of the order.

    Returns:
      Seconds a call, one figure a round.
    """
    repeats = {}
    for name, call in calls.items():
        # The first execution allocates; the fastest of a few says how long one takes. Timings
        # must last equally long, or a longer one would be interrupted more by other processes.
        seconds = min(_seconds(call, 1) for _ in range(_WARM_UP))
        repeats[name] = max(1, round(min_seconds / seconds))
    times: dict[Any, list[float]] = {name: [] for name in calls}
    rng = np.random.default_rng(seed)
    names = list(calls)
    for _ in range(rounds):
        for index in rng.permutation(len(names)):
            name = names[index]
            times[name].append(_seconds(calls[name], repeats[name]))
    return times


def _seconds(call: Callable[[], Any], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def _key(cfg: ViTConfig, counts: tuple[int, ...] | None) -> tuple[ViTConfig, tuple[int, ...]]:
    """Return what the speed depends on: equal programs are timed once, whatever their weights."""
    cfg = dataclasses.replace(cfg, dropout=0.0, drop_path=0.0, remat="none", head_bias=0.0)
    return cfg, full_counts(cfg) if counts is None else tuple(counts)


def _dense(cfg: ViTConfig) -> ViTConfig:
    """Return the dense ViT of the same sizes, run the same way (scan, dtype)."""
    return dataclasses.replace(cfg, **dense_fields(cfg))


class _Parameters:
    """Parameters on the device, made or moved once for all batch sizes and budgets."""

    def __init__(self):
        self._made: dict[Any, Any] = {}

    def __call__(self, program: Program) -> Any:
        key = program.cfg if program.params is None else id(program.params)
        if key not in self._made:
            values = program.params
            values = functional.init(program.cfg, 0) if values is None else values
            self._made[key] = jax.device_put(values)
        return self._made[key]


def _compile(program: Program, params: Any, batch_size: int, seed: int) -> Callable[[], Any]:
    """Compile a forward pass; return a function that runs it to its end."""
    cfg = program.cfg
    key = jax.random.key(seed)
    images = jax.random.normal(key, (batch_size, *cfg.image_size, cfg.channels), jnp.float32)

    def forward(params: Any, images: jax.Array, key: jax.Array) -> jax.Array:
        return functional.apply(cfg, params, images, program.counts, key=key)[0]

    compiled = jax.jit(forward).lower(params, images, key).compile()
    return lambda: compiled(params, images, key).block_until_ready()


def _timing(program: Program, size: int, times: list[float], dense: list[float]) -> Timing:
    median = statistics.median(times)
    low, high = np.percentile(times, [25, 75])
    full = count_macs(_dense(program.cfg)).total
    mac_ratio = full / count_macs(program.cfg, program.counts).total
    speed_up = statistics.median(dense) / median
    return Timing(
        batch_size=size,
        milliseconds=1e3 * median,
        images_per_second=size / median,
        spread=float((high - low) / median),
        speed_up=speed_up,
        mac_ratio=mac_ratio,
        share_of_mac_ratio=speed_up / mac_ratio,
    )
