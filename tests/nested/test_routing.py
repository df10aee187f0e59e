"""Expert Preferred Routing against a brute-force oracle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from mone.nested import Router, expert_preferred_routing, random_router_probs


def _oracle(probs, counts):
    """Algorithm 1 for one image, one token at a time."""
    num_tokens, num_experts = probs.shape
    free = set(range(num_tokens))
    assignment = np.full(num_tokens, -1)
    for j in reversed(range(1, num_experts)):
        for _ in range(counts[j]):
            best = min(free, key=lambda n: (-probs[n, j], n))
            assignment[best] = j
            free.remove(best)
    assignment[sorted(free)] = 0
    return assignment


@st.composite
def _problems(draw):
    num_tokens, num_experts = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    cuts = sorted(
        draw(
            st.lists(st.integers(0, num_tokens), min_size=num_experts - 1, max_size=num_experts - 1)
        )
    )
    counts = np.diff([0, *cuts, num_tokens]).tolist()
    # Few levels, so that ties are the rule, and 0, which taken tokens must not tie with.
    levels = st.sampled_from([0.0, 0.25, 0.5, 1.0])
    size = 2 * num_tokens * num_experts
    values = draw(st.lists(levels, min_size=size, max_size=size))
    return np.array(values, np.float32).reshape(2, num_tokens, num_experts), counts


@settings(deadline=None, max_examples=150)
@given(_problems())
def test_equals_the_oracle_and_keeps_every_token(problem):
    probs, counts = problem
    with jax.disable_jit():
        got = np.asarray(expert_preferred_routing(jnp.asarray(probs), counts))
    for image in range(2):
        np.testing.assert_array_equal(got[image], _oracle(probs[image], counts))
        np.testing.assert_array_equal(np.bincount(got[image], minlength=len(counts)), counts)


@pytest.mark.parametrize("fill", [0.0, -np.inf, np.nan, -3e38])
def test_degenerate_scores_still_give_every_expert_its_tokens(fill):
    probs = jnp.full((3, 10, 4), fill)
    got = np.asarray(expert_preferred_routing(probs, (4, 3, 2, 1)))
    for row in got:
        np.testing.assert_array_equal(np.bincount(row, minlength=4), (4, 3, 2, 1))


def test_any_number_of_leading_axes_under_jit():
    probs = jax.random.uniform(jax.random.key(0), (2, 3, 9, 4))
    counts = (3, 0, 4, 2)
    got = jax.jit(lambda p: expert_preferred_routing(p, counts))(probs)
    assert got.shape == (2, 3, 9)
    assert got.dtype == jnp.int32
    for i in range(2):
        for k in range(3):
            np.testing.assert_array_equal(got[i, k], _oracle(np.asarray(probs[i, k]), counts))


@pytest.mark.parametrize("counts", [(5, 5), (4, 3, 2), (11, -1, 0)])
def test_counts_must_fit(counts):
    with pytest.raises(ValueError, match="counts"):
        expert_preferred_routing(jnp.zeros((1, 10, 3)), counts)


def test_router_is_a_float32_softmax_even_for_bfloat16_tokens():
    router = Router(8, 3, rngs=nnx.Rngs(params=0))
    x = jax.random.normal(jax.random.key(1), (2, 5, 8)).astype(jnp.bfloat16)
    got = router(x)
    z = np.asarray(x, np.float64) @ np.asarray(router.kernel[...], np.float64)
    expected = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_random_probabilities_depend_on_the_key_only():
    a, b = (random_router_probs(jax.random.key(k), (2, 5, 3)) for k in (0, 1))
    np.testing.assert_allclose(a.sum(-1), 1, rtol=1e-6)
    assert not np.allclose(a, b)
