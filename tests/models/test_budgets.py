"""From e_c to token counts, for each method."""

import pytest

from mone.models import ViTConfig, budget_counts, expert_counts, full_counts, realised_capacity

SIZE = {
    "width": 32,
    "depth": 4,
    "num_heads": 2,
    "mlp_dim": 64,
    "patch_size": (4, 4),
    "image_size": (56, 56),
}
MONE = ViTConfig(**SIZE, method="mone", widths=(4, 8, 16, 32))
MATVIT = ViTConfig(**SIZE, method="matvit", widths=(4, 8, 16, 32))
MOD = ViTConfig(**SIZE, method="mod")
DENSE = ViTConfig(**SIZE)


def test_mone_has_the_published_counts():
    assert budget_counts(MONE, 0.4) == (62, 55, 46, 33)
    assert round(realised_capacity(MONE, (62, 55, 46, 33)), 4) == 0.3954


def test_full_and_single_expert_counts():
    assert full_counts(MONE) == budget_counts(MONE, 1.0) == (0, 0, 0, 196)
    assert expert_counts(MATVIT, 1) == budget_counts(MATVIT, 0.25) == (0, 196, 0, 0)
    assert full_counts(DENSE) == budget_counts(DENSE, 1.0) == (196,)


def test_matvit_and_dense_list_their_budgets():
    with pytest.raises(ValueError, match=r"e_c=0\.3.*0\.125, 0\.25, 0\.5, 1"):
        budget_counts(MATVIT, 0.3)
    with pytest.raises(ValueError, match=r"'dense'.*valid: 1"):
        budget_counts(DENSE, 0.5)


@pytest.mark.parametrize(("e_c", "counts"), [(0.5, (196, 0)), (0.75, (98, 98)), (1.0, (0, 196))])
def test_mod_processes_the_average_share(e_c, counts):
    assert budget_counts(MOD, e_c) == counts
    assert realised_capacity(MOD, counts) == pytest.approx(e_c)


def test_mod_published_setting():
    """12.5 % of tokens in every second block."""
    counts = budget_counts(MOD, 0.5 + 0.125 / 2)
    assert counts[1] == round(0.125 * 196)


def test_mod_states_its_interval():
    with pytest.raises(ValueError, match=r"model\.mod_every.*\[0\.5, 1\]"):
        budget_counts(MOD, 0.4)
