"""Which budgets each training step runs at: drawn on the host from (seed, step) alone.

A budget is a static tuple of token counts, one an expert, ascending in width; a step runs one
forward for each of its budgets. Because the draw depends on nothing but the seed and the step,
a resumed run draws what an uninterrupted one would have drawn.
"""

from collections.abc import Iterable

import numpy as np
from ml_collections import ConfigDict

from mone.errors import ConfigError
from mone.models import ViTConfig, budget_counts, expert_counts, full_counts

Counts = tuple[int, ...]
Budgets = tuple[Counts, ...]

_STREAM = 0xB0D6E7  # Keeps these draws apart from other uses of config.seed.
_CURRICULUM_SHARE = 0.5  # Of training, in which "wide_to_narrow" lets in all choices.


class BudgetSchedule:
    """The budgets of every step.

    - dense: one full forward. matvit: one forward an expert, widest first.
    - mone, mod: one forward, at `budget.e_c`, or (adaptive) at up to `budget.draws` of
      `budget.choices`; with `budget.full_width` a full forward before them.

    With several draws a step, the sorted choices are cut into that many stretches (the last one
    may be shorter), and a step has the choices of the same place in each: wide and narrow budgets
    come together (as in the sandwich rule of Yu & Huang 2019), and there are no more programs
    than places.

    Adaptive draws are stratified: every block of ceil(len(choices) / draws) steps has each choice
    once, in a fresh random order. That has the same mean as independent draws, with less
    variance. With order "wide_to_narrow" training starts with the widest choice only, and the
    next narrower ones join one by one, evenly over the first half of training; a block draws as
    evenly as it can from those that are in.
    """

    def __init__(self, config: ConfigDict, cfg: ViTConfig, total_steps: int):
        """Work out the counts of every choice.

        Args:
          config: The whole configuration; reads `budget` and `seed`.
          cfg: The model's description.
          total_steps: Length of training, for the curriculum.

        Raises:
          ConfigError: If a budget is infeasible, or budget.order or budget.distill does not fit.
        """
        b = config.budget
        if b.order not in ("random", "wide_to_narrow"):
            raise ConfigError(f"budget.order={b.order!r}: valid are random, wide_to_narrow")
        self._seed = config.seed
        self._total_steps = total_steps
        self._curriculum = b.order == "wide_to_narrow"
        self._choices = tuple(_choices(config, cfg))
        if b.distill and cfg.method != "dense" and all(len(c) < 2 for c in self._choices):
            raise ConfigError(
                f"budget.distill={b.distill} needs a wide forward beside the narrow one: set "
                "budget.full_width=True, or distill to 0"
            )

    @property
    def choices(self) -> tuple[Budgets, ...]:
        """What a step may draw, widest first."""
        return self._choices

    def __call__(self, step: int) -> Budgets:
        """Return the budgets of a step, counted from 0."""
        n = len(self._choices)
        if n == 1:
            return self._choices[0]
        block, place = divmod(step, n)
        size = self._pool_size(block * n)
        rng = np.random.default_rng([_STREAM, self._seed, block])
        order = np.concatenate([rng.permutation(size) for _ in range(-(-n // size))])
        return self._choices[order[place]]

    def upcoming(self, step: int) -> list[Budgets]:
        """Return what will be drawn from a step on, in the order of first use."""
        found: dict[Budgets, None] = {}
        for t in range(step, self._total_steps):
            found[self(t)] = None
            if len(found) == len(set(self._choices)):
                break
        return list(found)

    def _pool_size(self, step: int) -> int:
        n = len(self._choices)
        if not self._curriculum:
            return n
        return min(n, 1 + int(n * step / (_CURRICULUM_SHARE * self._total_steps)))


def _choices(config: ConfigDict, cfg: ViTConfig) -> Iterable[Budgets]:
    b = config.budget
    full = full_counts(cfg)
    if cfg.method == "dense":
        return [(full,)]
    if cfg.method == "matvit":
        return [tuple(expert_counts(cfg, j) for j in reversed(range(cfg.num_experts)))]
    if b.adaptive and not b.choices:
        raise ConfigError("budget.choices is empty: give at least one e_c, or set adaptive=False")
    e_cs = sorted(set(b.choices), reverse=True) if b.adaptive else [b.e_c]
    draws = b.draws if b.adaptive else 1
    if draws < 1:
        raise ConfigError(f"budget.draws={draws} must be at least 1")
    drawn = [
        budget_counts(cfg, e_c, allocation=b.allocation, delta=b.delta, beta=b.beta) for e_c in e_cs
    ]
    first = (full,) if b.full_width else ()
    places = -(-len(drawn) // draws)
    # Budgets that are equal after rounding to tokens are not run twice in a step.
    return [tuple(dict.fromkeys((*first, *drawn[i::places]))) for i in range(places)]
