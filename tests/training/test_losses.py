import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from mone.errors import ConfigError
from mone.training import losses


def _batch(b=6, k=5):
    rng = np.random.default_rng(1)
    return rng.normal(size=(b, k)) * 4, rng.dirichlet(np.ones(k), size=b)


def test_softmax_loss_with_soft_targets():
    logits, targets = _batch()
    expected = -(targets * scipy.special.log_softmax(logits, axis=-1)).sum(-1).mean()
    got = losses.softmax_loss(jnp.float32(logits), jnp.float32(targets))
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_sigmoid_loss_sums_over_classes():
    logits, targets = _batch()
    p = scipy.special.expit(logits)
    expected = -(targets * np.log(p) + (1 - targets) * np.log1p(-p)).sum(-1).mean()
    got = losses.sigmoid_loss(jnp.float32(logits), jnp.float32(targets))
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_sigmoid_loss_is_finite_far_out():
    got = losses.sigmoid_loss(jnp.array([[200.0, -200.0]]), jnp.array([[0.0, 1.0]]))
    np.testing.assert_allclose(got, 400.0)


@pytest.mark.parametrize("name", ["softmax", "sigmoid"])
def test_losses_are_float32_whatever_the_logits(name):
    logits, targets = _batch()
    got = losses.get_loss(name)(jnp.bfloat16(logits), jnp.float32(targets))
    assert got.dtype == jnp.float32
    rounded = jnp.bfloat16(logits).astype(jnp.float32)
    np.testing.assert_array_equal(got, losses.get_loss(name)(rounded, jnp.float32(targets)))


def test_label_smoothing():
    got = losses.one_hot_targets(jnp.array([2, 0]), 4, 0.2)
    np.testing.assert_allclose(got, [[0.05, 0.05, 0.85, 0.05], [0.85, 0.05, 0.05, 0.05]])


@pytest.mark.parametrize("name", ["softmax", "sigmoid"])
def test_distillation_is_least_at_the_teacher_and_leaves_it_alone(name):
    logits = jnp.float32(_batch()[0])

    def loss(student, teacher):
        return losses.get_loss(name)(student, losses.teacher_targets(name, teacher))

    to_student, to_teacher = jax.grad(loss, (0, 1))(logits, logits)
    np.testing.assert_allclose(to_student, 0, atol=1e-7)
    np.testing.assert_array_equal(to_teacher, 0)
    assert float(loss(logits + jnp.eye(6, 5), logits)) > float(loss(logits, logits))


def test_unknown_loss():
    with pytest.raises(ConfigError, match=r"loss\.name='mse'.*sigmoid, softmax"):
        losses.get_loss("mse")


def test_mixup_mixes_images_and_targets_alike():
    images = np.arange(3.0)[:, None, None, None] * np.ones((3, 2, 2, 1))
    x, y = losses.mixup(jnp.float32(images), jnp.eye(3), np.float32(0.75))
    np.testing.assert_allclose(x[:, 0, 0, 0], [0.75 * 0 + 0.25 * 2, 0.75 * 1, 0.75 * 2 + 0.25])
    np.testing.assert_allclose(y, 0.75 * np.eye(3) + 0.25 * np.roll(np.eye(3), 1, axis=0))


def test_mixup_coefficient_is_a_folded_beta():
    draws = np.array([losses.mixup_coefficient(0, t, 0.5) for t in range(4000)])
    assert draws.dtype == np.float32
    assert draws.min() >= 0.5
    assert draws.max() <= 1.0
    # Beta(1/2, 1/2) is the arcsine law: the mean distance from 1/2 is 1/pi.
    np.testing.assert_allclose(draws.mean() - 0.5, 1 / np.pi, atol=0.01)
    assert losses.mixup_coefficient(0, 7, 0.5) == draws[7]
    assert losses.mixup_coefficient(1, 7, 0.5) != draws[7]
    assert losses.mixup_coefficient(0, 7, 0.0) == 1.0
