"""The first lines of a run say what it will do, with figures that can be checked by hand."""

import jax

from mone.models import functional, vit_config
from mone.training.budgets import BudgetSchedule
from mone.training.overview import overview
from mone.training.progress import Reporter, Speed
from mone.training.sharding import make_mesh


def test_first_lines(tiny_config):
    devices = jax.device_count()
    config = tiny_config(**{"mesh.data": -1, "optimizer.accum_steps": 2})
    config.batch_size = 4 * devices
    cfg = vit_config(config.model)
    params = functional.abstract_params(cfg)
    lines = list(
        overview(
            config, cfg, make_mesh(config), params, BudgetSchedule(config, cfg, 6),
            num_train=20, steps_per_epoch=4, total_steps=6,
        )
    )  # fmt: skip
    text = "\n".join(lines)
    total = sum(x.size for x in jax.tree.leaves(params))
    assert "head/kernel" in lines[0]
    assert f"Total: {total:,}" in lines[0]
    assert f"devices: {devices} x cpu on 1 host(s), mesh data {devices} x fsdp 1" in text
    assert (
        f"batch: {config.batch_size} images = {devices} device(s) x 2 micro-batch(es) x 2" in text
    )
    assert "length: 6 steps = 1.5 epochs of 4 steps (20 images)" in text
    assert "  1.000: " in text  # GMAC at full width.
    assert "memory, estimated, MiB over all devices: " in text


def test_progress_line(capsys):
    reporter = Reporter(200)
    reporter.progress(50, 1.25, 1234.4, 3725.0)
    reporter.close()
    expected = "step 50/200 (25 %)  loss 1.2500  1,234 images/s  ETA 1:02:05\n"
    assert capsys.readouterr().err == expected
    Reporter(200, quiet=True).progress(50, 1.25, 1.0, 1.0)
    assert capsys.readouterr().err == ""


def test_speed_leaves_out_idle_time(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    speed = Speed(batch_size=8)
    now[0] += 10
    speed.idle(6)
    speed.step()
    speed.step()
    assert speed.lap() == 4.0  # 16 images in 4 seconds.
    assert speed.seconds_per_step == 2.0
