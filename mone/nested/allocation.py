"""Capacity allocation: which share of the tokens each nested expert processes.

Source: Jain et al., "Mixture of Nested Experts", Eq. 3. All of this runs on the host in
float64; what the model sees are static token counts.

Axes: E experts, ascending in width.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq

from mone.errors import ConfigError

METHODS = ("entropy", "uniform", "proportionate", "greedy")

# Added before the floor, so that a capacity which is exact in decimals (.25 of 196 tokens)
# does not lose a token to rounding.
_FLOOR_SLACK = 1e-6
# An e_c this close to an end of the feasible interval is that end.
_END_SLACK = 1e-9


def feasible_interval(widths: Sequence[int]) -> tuple[float, float]:
    """Return the lowest and the highest effective capacity that these widths can have.

    Args:
      widths: Widths of the E experts, ascending; the last one is the model width D.

    Returns:
      `(d_1 / D, 1)`.
    """
    share = _width_shares(widths)
    return float(share[0]), 1.0


def allocate_capacity(
    e_c: float,
    widths: Sequence[int],
    delta: float = 2.0,
    beta: float = 10.0,
    method: str = "entropy",
) -> np.ndarray:
    """Return the capacity of each expert, i.e. the share of the tokens that it processes.

    "entropy" maximises `sum_j c_j delta^(j-1) + beta H(c)` subject to `sum_j c_j = 1`,
    `sum_j c_j d_j / D = e_c` and `0 <= c_j <= 1` (MoNE, Eq. 3). The stationarity condition
    gives `c_j ∝ exp(delta^(j-1) / beta + lambda d_j / D)`, whose effective capacity grows
    strictly with the scalar lambda, so one bracketed root search solves it exactly.

    The others are what the paper compares with. "uniform" (`c_j = 1/E`) and "proportionate"
    (`c_j ∝ 1/d_j`, the same compute for each expert) have an effective capacity of their own;
    elsewhere they are mixed with the narrowest or the widest expert to meet `e_c`. "greedy"
    gives the widest expert as much as `e_c` allows, and the rest to the narrowest.

    Args:
      e_c: Effective capacity, the mean share of the model width that a token gets.
      widths: Widths of the E experts, strictly ascending; the last one is the model width D.
      delta: Preference for wide experts, > 0.
      beta: Weight of the entropy, > 0.
      method: One of METHODS.

    Returns:
      float64 [E], ascending in width; sums to 1 and has effective capacity `e_c`.

    Raises:
      ConfigError: `e_c` is infeasible (a ValueError; it states the feasible interval), or an
        argument is invalid.
    """
    share = _width_shares(widths)
    if method not in METHODS:
        raise ConfigError(f"allocation={method!r} is unknown; valid: {', '.join(METHODS)}")
    if not (np.isfinite(delta) and np.isfinite(beta) and delta > 0 and beta > 0):
        raise ConfigError(f"delta={delta} and beta={beta} must be finite and positive")
    low, high = float(share[0]), 1.0
    if not low - _END_SLACK <= e_c <= high + _END_SLACK:  # NaN fails this as well.
        raise ConfigError(
            f"e_c={e_c} is infeasible for widths {tuple(widths)}: "
            f"it must lie in [{low:.6g}, {high:.6g}] (narrowest width / model width, to 1)"
        )
    if e_c <= low + _END_SLACK:
        return _one_hot(len(share), 0)
    if e_c >= high - _END_SLACK:
        return _one_hot(len(share), -1)
    if method == "entropy":
        return _max_entropy(e_c, share, delta, beta)
    if method == "greedy":
        base = _one_hot(len(share), -1)
    else:
        base = np.ones_like(share) if method == "uniform" else 1.0 / share
    return _mix_with_end(e_c, share, base / base.sum())


def effective_capacity(capacity: Sequence[float], widths: Sequence[int]) -> float:
    """Return `e_c = sum_j c_j d_j / D` of capacities (or token counts; they are normalised)."""
    c = np.asarray(capacity, np.float64)
    return float(c @ _width_shares(widths) / c.sum())


def expert_token_counts(capacity: Sequence[float], num_tokens: int) -> tuple[int, ...]:
    """Return how many tokens each expert processes.

    `k_j = floor(c_j N)`, from the widest expert down; the tokens left over by the rounding go
    to the narrowest expert, so that none is dropped.

    Args:
      capacity: Shares [E], ascending in width, that sum to 1.
      num_tokens: N, the number of tokens of one image.

    Returns:
      E static counts that sum to N, ascending in width.

    Raises:
      ConfigError: the capacities are negative, not finite, or do not sum to 1.
    """
    c = np.asarray(capacity, np.float64)
    if c.ndim != 1 or not np.all(np.isfinite(c)) or np.any(c < -1e-9) or abs(c.sum() - 1) > 1e-6:
        raise ConfigError(f"capacity={tuple(c.tolist())} must be shares >= 0 that sum to 1")
    counts = np.floor(c * num_tokens + _FLOOR_SLACK).astype(int)
    counts[0] = num_tokens - counts[1:].sum()
    return tuple(int(k) for k in counts)


def _width_shares(widths: Sequence[int]) -> np.ndarray:
    """Return d_j / D as float64 [E]."""
    d = np.asarray(widths, np.float64)
    if d.ndim != 1 or d.size == 0 or np.any(d < 0) or np.any(np.diff(d) <= 0) or d[-1] <= 0:
        raise ConfigError(
            f"widths={tuple(widths)} must be strictly ascending, the model width last"
        )
    return d / d[-1]


def _one_hot(size: int, index: int) -> np.ndarray:
    c = np.zeros(size)
    c[index] = 1.0
    return c


def _max_entropy(e_c: float, share: np.ndarray, delta: float, beta: float) -> np.ndarray:
    preference = np.power(delta, np.arange(share.size, dtype=np.float64)) / beta

    def distribution(lam: float) -> np.ndarray:
        z = preference + lam * share
        p = np.exp(z - z.max())
        return p / p.sum()

    def excess(lam: float) -> float:
        return float(distribution(lam) @ share - e_c)

    low, high = -1.0, 1.0
    while excess(low) > 0:
        low *= 2
    while excess(high) < 0:
        high *= 2
    return distribution(brentq(excess, low, high, xtol=1e-13, rtol=1e-14, maxiter=500))


def _mix_with_end(e_c: float, share: np.ndarray, base: np.ndarray) -> np.ndarray:
    """Mix `base` with the narrowest or the widest expert so that the mixture meets `e_c`."""
    own = float(base @ share)
    end = 0 if e_c < own else -1
    weight = (e_c - share[end]) / (own - share[end]) if own != share[end] else 1.0
    return weight * base + (1 - weight) * _one_hot(share.size, end)
