import pytest

from mone.errors import ConfigError
from mone.evaluation.budgets import evaluation_budgets

# The tiny experiment has 16 patches and widths (4, 8, 16).


def test_each_method_has_budgets_of_its_own(tiny_experiment):
    def budgets(method, **how):
        return evaluation_budgets(tiny_experiment(**{"model.method": method}), **how)

    assert budgets("dense") == {1.0: (16,)}
    assert budgets("matvit") == {0.25: (16, 0, 0), 0.5: (0, 16, 0), 1.0: (0, 0, 16)}
    assert list(budgets("mone")) == [0.4, 0.6, 1.0]
    assert budgets("mod") == {0.6: (13, 3), 1.0: (0, 16)}  # 0.4 is below half the blocks.


def test_given_budgets_must_be_feasible_unless_others_may_do_them(tiny_experiment):
    for method, feasible in (("mone", r"\[0\.25, 1\]"), ("matvit", r"0\.25, 0\.5, 1")):
        config = tiny_experiment(**{"model.method": method})
        with pytest.raises(ConfigError, match=feasible):
            evaluation_budgets(config, [0.2, 0.5])
    config = tiny_experiment()
    assert list(evaluation_budgets(config, [0.5, 0.2], skip_infeasible=True)) == [0.5]
    with pytest.raises(ConfigError, match=r"e_c=0\.2 is infeasible"):
        evaluation_budgets(config, [0.1, 0.2], skip_infeasible=True)
    matvit = tiny_experiment(**{"model.method": "matvit"})
    assert list(evaluation_budgets(matvit, [0.4], skip_infeasible=True)) == [0.25, 0.5, 1.0]


def test_no_budget_is_an_error(tiny_experiment):
    with pytest.raises(ConfigError, match="empty"):
        evaluation_budgets(tiny_experiment(), [])


def test_budgets_ascend_and_follow_the_allocation(tiny_experiment):
    entropy = evaluation_budgets(tiny_experiment(), [0.8, 0.4])
    greedy = evaluation_budgets(tiny_experiment(**{"budget.allocation": "greedy"}), [0.8, 0.4])
    assert list(entropy) == list(greedy) == [0.4, 0.8]
    assert greedy[0.4] == (13, 0, 3)
    assert entropy[0.4][1] > 0
