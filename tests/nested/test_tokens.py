"""The token container keeps every feature of every token."""

import jax
import numpy as np
import pytest

from mone.nested import expert_preferred_routing, group_tokens

WIDTHS = (2, 4, 8)
COUNTS = (3, 0, 4)


@pytest.fixture
def routed():
    x = jax.random.normal(jax.random.key(0), (2, 7, 8))
    probs = jax.random.uniform(jax.random.key(1), (2, 7, 3))
    assignment = expert_preferred_routing(probs, COUNTS)
    return x, probs, assignment, group_tokens(x, COUNTS, WIDTHS, assignment, probs)


def test_shapes_of_the_groups(routed):
    *_, tokens = routed
    assert tokens.counts == COUNTS
    assert [a.shape for a in tokens.live] == [(2, 3, 2), (2, 0, 4), (2, 4, 8)]
    assert [a.shape for a in tokens.frozen] == [(2, 3, 6), (2, 0, 4), (2, 4, 0)]
    assert tokens.stats[2] is None


def test_grouping_and_restoring_is_the_identity(routed):
    x, _, _, tokens = routed
    np.testing.assert_array_equal(tokens.restore_order(tokens.grouped()), x)


def test_each_group_has_its_experts_tokens_and_probabilities(routed):
    x, probs, assignment, tokens = routed
    for image in range(2):
        for j, width in enumerate(WIDTHS):
            mine = np.flatnonzero(np.asarray(assignment[image]) == j)
            np.testing.assert_array_equal(tokens.live[j][image], x[image, mine, :width])
            np.testing.assert_array_equal(tokens.frozen[j][image], x[image, mine, width:])
            np.testing.assert_array_equal(tokens.prob[j][image, :, 0], probs[image, mine, j])


def test_statistics_of_the_frozen_features(routed):
    *_, tokens = routed
    frozen = np.asarray(tokens.frozen[0], np.float64)
    mean = frozen.mean(-1, keepdims=True)
    np.testing.assert_allclose(tokens.stats[0].mean, mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        tokens.stats[0].m2, ((frozen - mean) ** 2).sum(-1, keepdims=True), rtol=1e-5
    )


def test_a_single_group_is_not_reordered():
    x = jax.random.normal(jax.random.key(0), (2, 7, 8))
    tokens = group_tokens(x, (0, 7, 0), WIDTHS)
    assert tokens.order is None
    np.testing.assert_array_equal(tokens.grouped(), x)
    np.testing.assert_array_equal(tokens.restore_order(x), x)
