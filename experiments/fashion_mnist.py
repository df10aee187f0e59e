"""The Fashion-MNIST comparison: trains every model of it, then compares them.

    python experiments/fashion_mnist.py --output=runs/fashion_mnist --seeds=0,1,2 [--only=mone]

Two trainings at a time, each on a core of its own, which is faster on 2 cores than one after
the other. Started again it goes on: a run that is complete is only reported again. `--plan`
prints what would be run and what it costs, in forward passes of the dense model.
"""

import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from mone import config as config_lib
from mone.evaluation import count_macs
from mone.models import ViTConfig, full_counts, vit_config
from mone.training.budgets import BudgetSchedule

EPOCHS = 5.0  # Of each method at equal epochs; equal FLOPs means those of MatViT's.
E_C = (0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
CHOICES = "(0.15,0.3,0.45,0.65,0.85)"  # Fewer than the paper's nine: each one compiles for itself.


@dataclass(frozen=True)
class Run:
    """One training: its name, configuration, overrides, and whether to match MatViT's FLOPs."""

    name: str
    config: str
    overrides: tuple[str, ...] = ()
    equal_flops: bool = False
    init_from: str = ""  # Another run of the same seed.


def runs() -> list[Run]:
    """Return the trainings of one seed, in an order in which each finds what it starts from."""
    adaptive = (f"budget.choices={CHOICES}",)
    paper, sandwich = "fashion_mnist/mone:recipe=paper", "fashion_mnist/mone:recipe=sandwich"
    random = (*adaptive, "model.router=random")
    return [
        Run("MatViT", "fashion_mnist/matvit"),
        Run("ViT", "fashion_mnist/vit"),
        *(Run(f"ViT, e_c {e:g}", "fashion_mnist/vit", narrow_vit(e)) for e in E_C),
        Run("MoD", "fashion_mnist/mod:every=1,e_c=0", adaptive),
        Run("MoNE, paper", paper, adaptive),
        Run("MoNE, sandwich", sandwich, adaptive),
        Run("MoNE, from MatViT", paper, adaptive, init_from="MatViT"),
        Run("ViT, equal FLOPs", "fashion_mnist/vit", equal_flops=True),
        Run("MoD, equal FLOPs", "fashion_mnist/mod:every=1,e_c=0", adaptive, True),
        Run("MoNE, paper, equal FLOPs", paper, adaptive, True),
        Run("MoNE, sandwich, equal FLOPs", sandwich, adaptive, True),
        Run("MoNE, random router", sandwich, random, True),
        *(
            Run(f"MoNE, {method}", sandwich, (*adaptive, f"budget.allocation={method}"), True)
            for method in ("uniform", "greedy")
        ),
    ]


def narrow_vit(e_c: float) -> tuple[str, ...]:
    """Return overrides for the dense ViT whose MACs are nearest to `e_c` of the full ViT's.

    Linear products cost the square of the width, so the width is about its root of `e_c`.
    """
    full = vit_config(config_lib.load("fashion_mnist/vit").model)
    target = e_c * count_macs(full, full_counts(full)).total

    def macs(width: int) -> int:
        size = {"width": width, "mlp_dim": 4 * width, "widths": (width,)}
        cfg = ViTConfig(**{**vars(full), **size})
        return count_macs(cfg, full_counts(cfg)).total

    heads = full.num_heads
    width = min(range(heads, full.width, heads), key=lambda w: abs(macs(w) - target))
    return (f"model.width={width}", f"model.mlp_dim={4 * width}", f"name=ViT-{width}")


def step_macs(config) -> float:
    """Return the MACs of an image's forward passes in a step, averaged over the draws."""
    cfg = vit_config(config.model)
    choices = BudgetSchedule(config, cfg, total_steps=1).choices
    return sum(count_macs(cfg, c).total for budgets in choices for c in budgets) / len(choices)


def resolve(run: Run, seed: int, output: Path):
    """Return the run's configuration as overrides on its shipped one, and its directory."""
    overrides = [*run.overrides, f"seed={seed}", f"num_epochs={EPOCHS}"]
    if not any(o.startswith("name=") for o in overrides):
        overrides.append(f"name={run.name}")
    if run.init_from:
        overrides.append(f"checkpoint.init_from={directory(run.init_from, seed, output)}")
    if run.equal_flops:
        matvit = step_macs(config_lib.load("fashion_mnist/matvit"))
        own = step_macs(config_lib.load(run.config, overrides))
        overrides.append(f"num_epochs={EPOCHS * matvit / own:.4g}")
    return overrides, directory(run.name, seed, output)


def directory(name: str, seed: int, output: Path) -> Path:
    """Return the work directory of a run."""
    return output / f"{re.sub(r'[^a-z0-9.]+', '_', name.lower())}_s{seed}"


def train_all(jobs: queue.SimpleQueue, core: int, failed: list[str]) -> None:
    """Train what is in the queue, one after the other, on one core; collect what failed."""
    pin = ["taskset", "-c", str(core)] if shutil.which("taskset") else []
    while True:
        try:
            run, overrides, workdir, done, wait = jobs.get_nowait()
        except queue.Empty:
            return
        if wait is not None:
            wait.wait()  # The run it starts from; if that failed, so does this one, and says so.
        workdir.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "mone.cli", "train", f"--config={run.config}"]
        command += [f"--workdir={workdir}", *(f"--config.{o}" for o in overrides)]
        with open(f"{workdir}.log", "w", encoding="utf-8") as log:
            code = subprocess.run(pin + command, stdout=log, stderr=log, check=False).returncode
        print(
            f"{workdir.name}: {'done' if code == 0 else f'FAILED, see {workdir}.log'}", flush=True
        )
        if code:
            failed.append(workdir.name)
        done.set()


def main() -> int:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("runs/fashion_mnist"))
    parser.add_argument("--seeds", default="0,1,2", help="comma-separated")
    parser.add_argument("--only", default="", help="regular expression on the names of runs")
    parser.add_argument("--plan", action="store_true", help="print what would be run")
    args = parser.parse_args()
    jobs, finished, workdirs = queue.SimpleQueue(), {}, []
    dense = step_macs(config_lib.load("fashion_mnist/vit"))
    total = 0.0
    for seed in map(int, args.seeds.split(",")):
        for run in (r for r in runs() if re.search(args.only, r.name)):
            overrides, workdir = resolve(run, seed, args.output)
            config = config_lib.load(run.config, overrides)
            cost = config.num_epochs * step_macs(config) / dense
            total += cost
            if args.plan:
                print(f"{workdir.name:40} {config.num_epochs:6.4g} epochs, cost {cost:.3g}")
            source = directory(run.init_from, seed, args.output) if run.init_from else None
            finished[workdir] = threading.Event()
            jobs.put((run, overrides, workdir, finished[workdir], finished.get(source)))
            workdirs.append(workdir)
    print(f"{len(workdirs)} trainings, cost {total:.4g} epochs of the dense model")
    if args.plan:
        return 0
    failed: list[str] = []
    cores = range(min(2, os.cpu_count() or 1))
    threads = [threading.Thread(target=train_all, args=(jobs, core, failed)) for core in cores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        print(f"not compared, because these failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    sweep = [sys.executable, "-m", "mone.cli", "sweep", *map(str, workdirs)]
    sweep += [f"--output={args.output / 'sweep'}", f"--e_c={','.join(map(str, (*E_C, 1.0)))}"]
    return subprocess.run(sweep, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
