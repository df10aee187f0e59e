"""Capacity allocation against an independent optimiser and the published table."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from mone.nested import (
    allocate_capacity,
    effective_capacity,
    expert_token_counts,
    feasible_interval,
)
from mone.nested.allocation import METHODS

HALVING = (96, 192, 384, 768)


@pytest.mark.parametrize(
    ("e_c", "expected"),
    [
        (0.2, (0.601, 0.310, 0.083, 0.006)),
        (0.3, (0.414, 0.321, 0.194, 0.071)),
        # To five digits: .28245 of D/4 here, and .28745 of D below.
        (0.4, (0.307, 0.282, 0.239, 0.171)),
        (0.5, (0.227, 0.235, 0.251, 0.287)),
        (0.6, (0.161, 0.184, 0.241, 0.413)),
        (0.8, (0.059, 0.084, 0.170, 0.687)),
    ],
)
def test_table_of_capacities_for_halving_widths(e_c, expected):
    np.testing.assert_allclose(allocate_capacity(e_c, HALVING), expected, atol=5.01e-4)


def _slsqp(e_c, widths, delta, beta):
    """Solve Eq. 3 with scipy's SLSQP, as the paper does."""
    share = np.asarray(widths) / widths[-1]
    gain = delta ** np.arange(len(widths))

    def loss(c):
        c = np.maximum(c, 1e-300)
        return -(c @ gain - beta * (c * np.log(c)).sum()) / beta

    def slope(c):
        return -(gain - beta * (np.log(np.maximum(c, 1e-300)) + 1)) / beta

    constraints = [
        {"type": "eq", "fun": lambda c: c.sum() - 1, "jac": lambda c: np.ones_like(c)},
        {"type": "eq", "fun": lambda c: c @ share - e_c, "jac": lambda c: share},
    ]
    start = _feasible_interior(share, e_c)
    result = minimize(
        loss,
        start,
        jac=slope,
        bounds=[(1e-12, 1)] * len(widths),
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 2000},
    )
    return result.x


def _feasible_interior(share, e_c):
    """Mix the uniform distribution with an end so that it meets e_c."""
    base = np.full(share.size, 1 / share.size)
    own = base @ share
    end = 0 if e_c < own else -1
    weight = (e_c - share[end]) / (own - share[end])
    one_hot = np.zeros(share.size)
    one_hot[end] = 1
    return weight * base + (1 - weight) * one_hot


def test_agrees_with_slsqp_on_200_random_problems():
    rng = np.random.default_rng(0)
    for _ in range(200):
        size = int(rng.integers(2, 7))
        widths = np.cumsum(rng.integers(8, 200, size=size)).tolist()
        low, high = feasible_interval(widths)
        e_c = low + (high - low) * rng.uniform(0.08, 0.92)
        delta, beta = rng.uniform(1.1, 3.0), rng.uniform(2.0, 20.0)
        exact = allocate_capacity(e_c, widths, delta, beta)
        np.testing.assert_allclose(exact, _slsqp(e_c, widths, delta, beta), atol=1e-6)


def test_a_solve_takes_under_a_millisecond():
    """A loose guard for the host-side cost; the median is about .1 ms."""
    times = []
    for e_c in np.linspace(0.15, 0.95, 41):
        start = time.perf_counter()
        allocate_capacity(e_c, HALVING)
        times.append(time.perf_counter() - start)
    assert np.median(times) < 1e-3


@settings(deadline=None, max_examples=60)
@given(
    data=st.data(),
    steps=st.lists(st.integers(1, 100), min_size=1, max_size=6),
    method=st.sampled_from(METHODS),
)
def test_every_method_meets_the_constraints(data, steps, method):
    widths = np.cumsum(steps).tolist()
    low, high = feasible_interval(widths)
    e_c = data.draw(st.floats(low, high))
    c = allocate_capacity(e_c, widths, method=method)
    assert c.dtype == np.float64
    assert c.min() >= -1e-12
    assert abs(c.sum() - 1) < 1e-9
    assert abs(effective_capacity(c, widths) - e_c) < 1e-8


def test_ends_are_one_hot():
    np.testing.assert_array_equal(allocate_capacity(0.125, HALVING), [1, 0, 0, 0])
    np.testing.assert_array_equal(allocate_capacity(1.0, HALVING), [0, 0, 0, 1])
    np.testing.assert_array_equal(allocate_capacity(1.0, (7,)), [1])


def test_uniform_and_proportionate_have_their_published_capacity():
    uniform = allocate_capacity(15 / 32, HALVING, method="uniform")
    np.testing.assert_allclose(uniform, [0.25] * 4, atol=1e-12)
    proportionate = allocate_capacity(4 / 15, HALVING, method="proportionate")
    np.testing.assert_allclose(proportionate, np.array([8, 4, 2, 1]) / 15, atol=1e-12)


def test_greedy_fills_the_widest_expert_first():
    c = allocate_capacity(0.4, HALVING, method="greedy")
    np.testing.assert_allclose(c, [0.6 / 0.875, 0, 0, 0.275 / 0.875], atol=1e-12)


@pytest.mark.parametrize("e_c", [0.1, 1.01, -1.0, float("nan")])
def test_infeasible_capacity_states_the_interval(e_c):
    with pytest.raises(ValueError, match=r"\[0\.125, 1\]"):
        allocate_capacity(e_c, HALVING)


@pytest.mark.parametrize(
    ("kwargs", "name"),
    [({"method": "best"}, "best"), ({"beta": 0.0}, "beta"), ({"delta": float("nan")}, "delta")],
)
def test_invalid_arguments_are_named(kwargs, name):
    with pytest.raises(ValueError, match=name):
        allocate_capacity(0.5, HALVING, **kwargs)


def test_invalid_widths_are_named():
    with pytest.raises(ValueError, match="ascending"):
        allocate_capacity(0.5, (4, 2, 8))


def test_published_token_counts():
    counts = expert_token_counts(allocate_capacity(0.4, HALVING), 196)
    assert counts == (62, 55, 46, 33)
    assert round(effective_capacity(counts, HALVING), 4) == 0.3954
    assert expert_token_counts(allocate_capacity(0.2, HALVING), 196) == (119, 60, 16, 1)


def test_a_quarter_of_196_tokens_is_49():
    assert expert_token_counts([0.25] * 4, 196) == (49, 49, 49, 49)


@settings(deadline=None)
@given(
    weights=st.lists(st.integers(0, 100), min_size=1, max_size=6).filter(any),
    tokens=st.integers(1, 600),
)
def test_counts_never_lose_a_token(weights, tokens):
    capacity = np.array(weights) / sum(weights)
    counts = expert_token_counts(capacity, tokens)
    assert sum(counts) == tokens
    assert min(counts) >= 0
    assert all(
        abs(k - c * tokens) < 1 + 1e-5 for k, c in zip(counts[1:], capacity[1:], strict=True)
    )


@pytest.mark.parametrize("capacity", [[0.5, 0.4], [1.5, -0.5], [float("nan"), 1.0]])
def test_capacities_must_be_shares(capacity):
    with pytest.raises(ValueError, match="sum to 1"):
        expert_token_counts(capacity, 10)
