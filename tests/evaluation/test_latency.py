import dataclasses
import time

import pytest

from mone.errors import ConfigError
from mone.evaluation.cost import count_macs, dense_fields
from mone.evaluation.latency import Program, interleaved_times, measure_throughput
from mone.models import budget_counts, vit_config


def test_calls_are_interleaved_and_timed_apart():
    order = []

    def call(name, seconds):
        def run():
            order.append(name)
            time.sleep(seconds)

        return run

    calls = {"slow": call("slow", 0.02), "fast": call("fast", 0.004)}
    times = interleaved_times(calls, rounds=4, min_seconds=0.02)
    assert [len(values) for values in times.values()] == [4, 4]
    assert 0.02 <= min(times["slow"]) < 0.06
    assert 0.004 <= min(times["fast"]) < 0.02
    # After the warm-up (5 each), every round has both: never two rounds of one in a row.
    rounds = order[10:]
    slow = [i for i, name in enumerate(rounds) if name == "slow"]
    assert len(slow) == 4
    for start, stop in zip(slow[:-2], slow[2:], strict=True):
        assert "fast" in rounds[start:stop]


def test_speed_up_is_over_dense_and_shares_refer_to_macs(tiny_experiment, lively_params):
    config = tiny_experiment()
    cfg = vit_config(config.model)
    counts = budget_counts(cfg, 0.4)
    dense = vit_config(tiny_experiment(**{"model.method": "dense"}).model)
    programs = {
        "again": Program(cfg, None, counts),
        "narrow": Program(cfg, lively_params(config), counts),
        "dense": Program(dense, None, None),
    }
    found = measure_throughput(programs, batch_sizes=(1, 3), rounds=3, min_seconds=0.001)
    assert set(found) == set(programs)
    for size in (1, 3):
        narrow, full = found["narrow"][size], found["dense"][size]
        assert narrow.images_per_second == pytest.approx(size / (narrow.milliseconds / 1e3))
        assert narrow.speed_up == pytest.approx(full.milliseconds / narrow.milliseconds)
        ratio = count_macs(dense).total / count_macs(cfg, counts).total
        assert narrow.mac_ratio == ratio > 1.5
        assert narrow.share_of_mac_ratio == pytest.approx(narrow.speed_up / ratio)
        assert found["again"][size] == narrow
        assert (full.speed_up, full.mac_ratio, full.share_of_mac_ratio) == (1, 1, 1)


@pytest.mark.parametrize("wrong", [{"batch_sizes": (0,)}, {"batch_sizes": ()}, {"rounds": 0}])
def test_senseless_settings_are_refused(tiny_experiment, wrong):
    cfg = vit_config(tiny_experiment().model)
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))} .*positive"):
        measure_throughput({"a": Program(cfg, None, None)}, **wrong)


@pytest.mark.parametrize(
    "fields",
    [
        {"model.method": "mod", "model.mod_every": 1},
        {"model.method": "matvit", "model.nest": "ffn"},
        {"model.router": "random", "model.router_noise": 0.5, "model.router_scale": False},
        {"model.frozen": "dropped", "model.router_layers": (0, 1)},
    ],
)
def test_all_methods_share_one_dense_model(tiny_experiment, fields):
    dense = vit_config(tiny_experiment(**{"model.method": "dense"}).model)
    cfg = vit_config(tiny_experiment(**fields).model)
    assert dataclasses.replace(cfg, **dense_fields(cfg)) == dense
