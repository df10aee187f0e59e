"""The Fashion-MNIST comparison: trains every model of it, then compares them.

    python experiments/fashion_mnist.py --output=runs/fashion_mnist --seeds=0,1,2 \
        [--groups=main,dense,epochs,ablation,long] [--only=REGEX]

Groups: "main" (equal training FLOPs), "dense" (ViTs of the narrower budgets, equal FLOPs too),
"epochs" (equal epochs), "ablation" and "long" (equal FLOPs, four times as many). What a run starts
from is trained before it, whichever was asked for. Two trainings at a time, each on a core of its
own, which is faster on 2 cores than one after the other. Started again it goes on: a run that is
complete is only reported again. `--plan` prints what would be run and what it costs, in forward
passes of the dense model. Ends with the reports of `mone sweep`, each with its table of accuracies
at equal MACs.
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

EPOCHS = 0.5  # Of each method at equal epochs; equal FLOPs means those of MatViT's.
GROUPS = ("main", "dense", "epochs", "ablation", "long")
E_C = (0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
CHOICES = "(0.15,0.3,0.45,0.65,0.85)"  # Fewer than the paper's nine: each one compiles for itself.


@dataclass(frozen=True)
class Run:
    """One training of each seed.

    Attributes:
      name: Experiment name, in tables.
      config: Shipped configuration.
      overrides: Fields that differ from it.
      share: Length, as a share of EPOCHS, or with `equal_flops` of MatViT's training FLOPs.
      equal_flops: Whether to match FLOPs.
      init_from: Another run, of the same seed, whose parameters start this one.
      group: One of GROUPS, or "start": trained only for what starts from it.
    """

    name: str
    config: str
    overrides: tuple[str, ...] = ()
    share: float = 1.0
    equal_flops: bool = True
    init_from: str = ""
    group: str = "main"


def runs() -> list[Run]:
    """Return the trainings of one seed, in an order in which each finds what it starts from."""
    return [*_main(), *_dense(), *_equal_epochs(), *_ablation(), *_long()]


# Runs of the main group that belong in another group's report too: MatViT's length is that of
# equal epochs, and the ablation changes this MoNE.
_BESIDE = {
    "dense": ("MatViT", "MoNE", "ViT"),
    "epochs": ("MatViT",),
    "ablation": ("MatViT", "MoNE", "MoNE, paper", "MoNE, sandwich"),
}

_SINGLE = "fashion_mnist/mone:recipe=single"
_PAPER = "fashion_mnist/mone:recipe=paper"
_SANDWICH = "fashion_mnist/mone:recipe=sandwich"
_ADAPTIVE = (f"budget.choices={CHOICES}",)
_FROM_A_SIXTH = (
    "budget.choices=(0.19,0.33,0.48,0.67,1.0)"  # The recipe's, for a wider narrowest expert.
)
_ADAMW = ("optimizer.name=adamw",)


def _main() -> list[Run]:
    return [
        Run("MatViT, half", "fashion_mnist/matvit", share=0.5, group="start"),
        Run("MatViT", "fashion_mnist/matvit"),
        Run("MoNE", _SINGLE),
        Run("MoNE, paper", _PAPER, _ADAPTIVE),
        Run("MoNE, sandwich", _SANDWICH),
        Run("MoD", "fashion_mnist/mod", _ADAPTIVE),
        Run("ViT", "fashion_mnist/vit"),
        Run("MoNE from MatViT", _SINGLE, share=0.5, init_from="MatViT, half"),
        Run("MoNE, random router", _SINGLE, ("model.router=random",)),
        Run("MoNE, uniform", _SINGLE, ("budget.allocation=uniform",)),
        Run("MoNE, greedy", _SINGLE, ("budget.allocation=greedy",)),
    ]


def _dense() -> list[Run]:
    def run(e_c: float) -> Run:
        name = f"ViT, e_c {e_c:g}, equal FLOPs"
        return Run(name, "fashion_mnist/vit", narrow_vit(e_c), group="dense")

    return [run(e_c) for e_c in E_C]


def _equal_epochs() -> list[Run]:
    def run(name: str, config: str, overrides: tuple[str, ...] = (), **fields: str) -> Run:
        return Run(name, config, overrides, equal_flops=False, group="epochs", **fields)

    return [
        *(run(f"ViT, e_c {e:g}", "fashion_mnist/vit", narrow_vit(e)) for e in E_C),
        run("ViT, equal epochs", "fashion_mnist/vit"),
        run("MoD, equal epochs", "fashion_mnist/mod", _ADAPTIVE),
        run("MoNE, equal epochs", _SINGLE),
        run("MoNE, paper, equal epochs", _PAPER, _ADAPTIVE),
        run("MoNE, sandwich, equal epochs", _SANDWICH),
        run("MoNE, after MatViT", _SINGLE, init_from="MatViT"),
    ]


def _ablation() -> list[Run]:
    """Each changes one thing of the recipe "single", at equal FLOPs."""
    draw_and_full = ("budget.choices=(0.15,0.3,0.45,0.65)", "budget.full_width=True")
    changes = {
        "low budgets": ("budget.choices=(0.15,0.2,0.3,0.45,1.0)",),
        "full width beside": draw_and_full,
        "full width beside, distilled": (*draw_and_full, "budget.distill=0.5"),
        "wide to narrow": ("budget.order=wide_to_narrow",),
        "router noise": ("model.router_noise=0.5",),
        "3 widths": ("model.widths=(16,48,96)", _FROM_A_SIXTH),
        "wider widths": ("model.widths=(16,32,64,96)", _FROM_A_SIXTH),
        "no router scale": ("model.router_scale=False",),
        "frozen features dropped": ("model.frozen=dropped",),
        "AdamW": _ADAMW,
    }
    return [
        Run("MatViT, AdamW", "fashion_mnist/matvit", _ADAMW, group="ablation"),
        Run("MoNE, nine budgets as printed", _PAPER, group="ablation"),
        *(Run(f"MoNE, {name}", _SINGLE, o, group="ablation") for name, o in changes.items()),
    ]


def _long() -> list[Run]:
    """Whether the order of the main group holds in longer training."""
    return [
        Run("MatViT, long", "fashion_mnist/matvit", share=4, group="long"),
        Run("MoNE, long", _SINGLE, share=4, group="long"),
        Run("ViT, long", "fashion_mnist/vit", share=4, group="long"),
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
    overrides = [*run.overrides, f"seed={seed}"]
    if not any(o.startswith("name=") for o in overrides):
        overrides.append(f"name={run.name}")
    if run.init_from:
        overrides.append(f"checkpoint.init_from={directory(run.init_from, seed, output)}")
    epochs = EPOCHS * run.share
    if run.equal_flops:
        matvit = step_macs(config_lib.load("fashion_mnist/matvit"))
        epochs *= matvit / step_macs(config_lib.load(run.config, overrides))
    # Short runs warm up over the same share of their steps as long ones.
    overrides += [f"num_epochs={epochs:.4g}", f"optimizer.warmup_epochs={0.1 * epochs:.4g}"]
    return overrides, directory(run.name, seed, output)


def directory(name: str, seed: int, output: Path) -> Path:
    """Return the work directory of a run."""
    return output / f"{re.sub(r'[^a-z0-9.]+', '_', name.lower())}_s{seed}"


def train_all(jobs: "queue.SimpleQueue[Job]", core: int, failed: list[str]) -> None:
    """Train what is in the queue, one after the other, on one core; collect what failed."""
    pin = ["taskset", "-c", str(core)] if shutil.which("taskset") else []
    while True:
        try:
            job = jobs.get_nowait()
        except queue.Empty:
            return
        if job.wait is not None:
            job.wait.wait()  # The run it starts from; if that failed, so does this one.
        command = [sys.executable, "-m", "mone.cli", "train", f"--config={job.run.config}"]
        command += [f"--workdir={job.workdir}", *(f"--config.{o}" for o in job.overrides)]
        with open(f"{job.workdir}.log", "w", encoding="utf-8") as log:
            code = subprocess.run(pin + command, stdout=log, stderr=log, check=False).returncode
        result = f"FAILED, see {job.workdir}.log" if code else "done"
        print(f"{job.workdir.name}: {result}", flush=True)
        if code:
            failed.append(job.workdir.name)
        job.done.set()


@dataclass(frozen=True)
class Job:
    """A run of one seed."""

    run: Run
    seed: int
    overrides: list[str]
    workdir: Path
    cost: float  # In epochs of the dense model.
    done: threading.Event
    wait: threading.Event | None  # Set when the run that this one starts from is done.


def plan(seeds: list[int], groups: list[str], only: str, output: Path) -> list[Job]:
    """Return the jobs: of all seeds, group by group."""
    dense = step_macs(config_lib.load("fashion_mnist/vit"))
    jobs: dict[Path, Job] = {}
    chosen = [run for run in runs() if run.group in groups and re.search(only, run.name)]
    sources = {run.init_from for run in chosen}
    chosen = [run for run in runs() if run in chosen or run.name in sources]
    for group in dict.fromkeys(run.group for run in chosen):
        for seed in seeds:
            for run in (r for r in chosen if r.group == group):
                overrides, workdir = resolve(run, seed, output)
                config = config_lib.load(run.config, overrides)
                cost = config.num_epochs * step_macs(config) / dense
                source = jobs.get(directory(run.init_from, seed, output)) if run.init_from else None
                wait = source and source.done
                jobs[workdir] = Job(run, seed, overrides, workdir, cost, threading.Event(), wait)
    return list(jobs.values())


def compare(jobs: list[Job], output: Path) -> int:
    """Write the reports: one a group, and the main models with their router replaced."""

    def sweep(name: str, chosen: list[Job], *flags: str) -> int:
        if not chosen:
            return 0
        command = [sys.executable, "-m", "mone.cli", "sweep", *(str(j.workdir) for j in chosen)]
        command += [f"--output={output / name}", f"--e_c={','.join(map(str, (*E_C, 1.0)))}"]
        return subprocess.run([*command, *flags], check=False).returncode

    groups = {
        group: [j for j in jobs if j.run.group == group or j.run.name in _BESIDE.get(group, ())]
        for group in GROUPS
        if any(j.run.group == group for j in jobs)
    }
    codes = [
        sweep(group, chosen, *([] if group == "main" else ["--batch_sizes=0"]))
        for group, chosen in groups.items()
    ]
    routed = [j for j in groups.get("main", ()) if j.run.name == "MoNE"]
    return max([*codes, sweep("random", routed, "--router=random", "--batch_sizes=0")])


def main() -> int:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("runs/fashion_mnist"))
    parser.add_argument("--seeds", default="0,1,2", help="comma-separated")
    parser.add_argument("--groups", default=",".join(GROUPS), help="of runs")
    parser.add_argument("--only", default="", help="regular expression on the names of runs")
    parser.add_argument("--plan", action="store_true", help="print what would be run")
    args = parser.parse_args()
    seeds = [int(seed) for seed in args.seeds.split(",")]
    jobs = plan(seeds, args.groups.split(","), args.only, args.output)
    for job in jobs if args.plan else ():
        print(f"{job.workdir.name:40} cost {job.cost:.3g}")
    print(f"{len(jobs)} trainings, cost {sum(j.cost for j in jobs):.4g} epochs of the dense model")
    if args.plan:
        return 0
    args.output.mkdir(parents=True, exist_ok=True)
    # Seeds share their programs: compiled once, loaded by the others.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(args.output.resolve() / "compiled"))
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    failed: list[str] = []
    cores = range(min(2, os.cpu_count() or 1))
    threads = [threading.Thread(target=train_all, args=(waiting, core, failed)) for core in cores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        print(f"not compared, because these failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    return compare(jobs, args.output)


if __name__ == "__main__":
    sys.exit(main())
