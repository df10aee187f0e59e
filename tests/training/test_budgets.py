from collections import Counter

import pytest

from mone.errors import ConfigError
from mone.models import budget_counts, vit_config
from mone.training.budgets import BudgetSchedule

SIXTEEN_TOKENS = {"model.patch_size": 7, "budget.choices": (0.55, 0.7, 0.85, 1.0)}


def _schedule(config, total_steps=100):
    return BudgetSchedule(config, vit_config(config.model), total_steps)


def _counts(config, e_c):
    return budget_counts(vit_config(config.model), e_c)


def test_draws_depend_on_seed_and_step_only(tiny_config):
    config = tiny_config(**SIXTEEN_TOKENS)
    draws = [_schedule(config)(t) for t in range(40)]
    again = _schedule(config)
    assert [again(t) for t in reversed(range(40))] == draws[::-1]
    other = _schedule(tiny_config(seed=1, **SIXTEEN_TOKENS))
    assert [other(t) for t in range(40)] != draws


def test_each_block_has_each_choice_once_in_a_fresh_order(tiny_config):
    config = tiny_config(**SIXTEEN_TOKENS)
    schedule = _schedule(config)
    blocks = [tuple(schedule(t) for t in range(b, b + 4)) for b in range(0, 100, 4)]
    expected = {(_counts(config, e_c),) for e_c in config.budget.choices}
    assert len(expected) == 4
    assert all(set(block) == expected for block in blocks)
    assert len(set(blocks)) > 10


def test_wide_to_narrow_lets_choices_in_one_by_one(tiny_config):
    config = tiny_config(**SIXTEEN_TOKENS, **{"budget.order": "wide_to_narrow"})
    schedule = _schedule(config, 400)
    widest_first = [(_counts(config, e_c),) for e_c in (1.0, 0.85, 0.7, 0.55)]
    starts = (0, 52, 100, 152)  # The blocks of 4 that begin at or after steps 0, 50, 100, 150.
    for size, start in enumerate(starts, 1):
        seen = Counter(schedule(t) for t in range(start, start + 48))
        assert seen.keys() == set(widest_first[:size])
        if size != 3:  # A block of 4 cannot be split evenly over 3.
            assert set(seen.values()) == {48 // size}
    late = Counter(schedule(t) for t in range(200, 400))
    assert late == dict.fromkeys(widest_first, 50)


def test_upcoming_is_what_will_be_drawn_in_order_of_use(tiny_config):
    schedule = _schedule(tiny_config(**SIXTEEN_TOKENS), 30)
    assert schedule.upcoming(0) == [schedule(t) for t in range(4)]
    assert schedule.upcoming(28) == [schedule(28), schedule(29)]
    assert schedule.upcoming(30) == []


def test_full_width_runs_beside_the_drawn_budget_but_not_twice(tiny_config):
    config = tiny_config(**SIXTEEN_TOKENS, **{"budget.full_width": True})
    full = (0, 16)
    choices = _schedule(config).choices
    assert choices[0] == (full,)
    assert choices[1:] == tuple((full, _counts(config, e)) for e in (0.85, 0.7, 0.55))


def test_several_draws_a_step_pair_wide_with_narrow(tiny_config):
    config = tiny_config(
        **{**SIXTEEN_TOKENS, "budget.draws": 2, "budget.choices": (0.55, 0.6, 0.75, 0.9)}
    )
    pairs = tuple(tuple(_counts(config, e) for e in pair) for pair in ((0.9, 0.6), (0.75, 0.55)))
    assert _schedule(config).choices == pairs
    config.budget.full_width = True
    assert _schedule(config).choices == tuple(((0, 16), *pair) for pair in pairs)
    config.budget.choices = (0.55, 0.6, 0.75, 1.0)  # 1 is the full width, which runs once.
    assert _schedule(config).choices[0] == ((0, 16), _counts(config, 0.6))


@pytest.mark.parametrize("draws", range(1, 7))
def test_each_choice_is_in_one_draw_whatever_their_number(tiny_config, draws):
    e_cs = (0.55, 0.65, 0.75, 0.85, 0.95)
    config = tiny_config(**{**SIXTEEN_TOKENS, "budget.draws": draws, "budget.choices": e_cs})
    choices = _schedule(config).choices
    assert max(len(choice) for choice in choices) <= draws
    assert sorted(sum(choices, ())) == sorted(_counts(config, e) for e in e_cs)


def test_fixed_budget(tiny_config):
    config = tiny_config(**{"budget.adaptive": False, "budget.e_c": 0.75})
    assert _schedule(config).choices == ((_counts(config, 0.75),),)


def test_matvit_runs_all_widths_widest_first(tiny_config):
    config = tiny_config(**{"model.method": "matvit", "model.num_experts": 3})
    assert _schedule(config)(5) == ((0, 0, 4), (0, 4, 0), (4, 0, 0))


def test_dense_runs_once(tiny_config):
    assert _schedule(tiny_config(**{"model.method": "dense"}))(5) == ((4,),)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"budget.order": "sorted"}, r"budget\.order='sorted'.*wide_to_narrow"),
        ({"budget.distill": 0.5}, r"budget\.distill=0\.5.*full_width"),
        ({"budget.choices": ()}, r"budget\.choices is empty"),
        ({"budget.choices": (0.1,)}, r"0\.1"),
        ({"budget.draws": 0}, r"budget\.draws=0 must be at least 1"),
    ],
)
def test_errors(tiny_config, fields, message):
    with pytest.raises(ConfigError, match=message):
        _schedule(tiny_config(**fields))
