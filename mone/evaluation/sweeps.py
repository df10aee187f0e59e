"""Comparison of trained models over budgets: accuracy, MACs and measured speed together."""

import dataclasses
import os
import platform
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from mone import config as config_lib
from mone.configs.base import base
from mone.errors import ConfigError
from mone.evaluation.accuracy import evaluate
from mone.evaluation.budgets import evaluation_budgets
from mone.evaluation.cost import count_macs, dense_macs
from mone.evaluation.equal_macs import equal_macs, equal_macs_markdown, equal_macs_tree
from mone.evaluation.files import output_directory, write_files
from mone.evaluation.latency import Program, Timing, measure_throughput
from mone.evaluation.maps import pixels, routing_figure, routing_maps
from mone.evaluation.plots import accuracy_figure, png
from mone.evaluation.report import Row, csv_text, json_text, markdown, summarise
from mone.models import ViTConfig, realised_capacity, vit_config

Progress = Callable[[str], None]

# Interquartile range / median of a program's timings above which a report warns.
_BUSY = 0.25


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained model and the budgets that it is compared at."""

    name: str  # In tables; shared by runs that differ in their seed only.
    workdir: Path
    config: ConfigDict
    cfg: ViTConfig
    params: Any
    budgets: dict[float, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """What a sweep found; `write_report` makes files of it."""

    rows: list[Row]
    environment: dict[str, Any]  # Versions and machine.
    notes: list[str]  # The command, and budgets left out.
    models: list[Trained]

    def json(self) -> str:
        """Return all but the models as JSON text."""
        compared = equal_macs(self.rows)
        more = {"equal_macs": equal_macs_tree(compared)} if compared else {}
        return json_text(self.rows, self.environment, self.notes, **more)

    def markdown(self) -> str:
        """Return the tables, their explanations and the notes."""
        compared = equal_macs(self.rows)
        more = [equal_macs_markdown(compared).rstrip()] if compared else []
        notes = [*more, _machine(self.environment), *self.notes]
        return markdown(summarise(self.rows), notes)


def sweep(
    workdirs: Sequence[str | os.PathLike],
    *,
    e_c: Sequence[float] | None = None,
    batch_sizes: Sequence[int] = (1, 8, 64),
    rounds: int = 15,
    router: str | None = None,
    overrides: Sequence[str] = (),
    command: str = "",
    on_progress: Progress | None = None,
) -> SweepResult:
    """Compare trained models at several budgets.

    Args:
      workdirs: Work directories of `mone train`; runs that differ in their seed only are one
        model, with mean and spread.
      e_c: Budgets of "mone" and "mod" models (those that a model cannot do are left out and
        noted); None: each model's own `eval.e_c`. "matvit" always runs at its widths, "dense"
        at 1.
      batch_sizes: Images a batch for throughput; empty: do not measure it.
      rounds: How often each program is timed.
      router: "trained" or "random" at evaluation; None: each model's own `eval.router`.
      overrides: Fields of `data` and `eval` to change in every run's configuration, see
        `mone.training.load_trained`.
      command: The command line, noted in the report.
      on_progress: Called with a line of text now and then.

    Returns:
      One row for each model and budget, in the order given.

    Raises:
      CheckpointError: A work directory cannot be read.
      ConfigError: No budget is feasible, the models were trained on different data, one training
        is given twice, or an override cannot be used.
      DataError: The evaluation data is missing.
    """
    report = on_progress or (lambda text: None)
    models = load_models(workdirs, e_c, overrides)
    timings = _time_all(models, batch_sizes, rounds, report)
    rows = []
    for index, model in enumerate(models):
        report(f"evaluating {model.name} ({model.workdir}) at {_listed(model.budgets)}")
        own = {e_c: timings[index, e_c] for e_c in model.budgets}
        rows += _rows(model, router or model.config.eval.router, own)
    notes = [f"Made by `{command}`."] if command else []
    notes += [*_moved_data(models), *_unreadable(rows), *_left_out(models, e_c), *_busy(rows)]
    return SweepResult(rows, environment(), notes, models)


def load_models(
    workdirs: Sequence[str | os.PathLike],
    e_c: Sequence[float] | None = None,
    overrides: Sequence[str] = (),
) -> list[Trained]:
    """Load all models, before anything is computed or written; see `sweep` for what can fail."""
    from mone.training import load_trained, read_config

    if not workdirs:
        raise ConfigError("no work directory was given: there is nothing to compare.")
    loaded = []
    for workdir in workdirs:
        loaded.append((Path(workdir), *load_trained(workdir, overrides=overrides)))
    _check_same_data([(path, config) for path, config, _ in loaded])
    # Overrides do not make different runs the same: names are those of the runs as trained.
    as_trained = [(path, read_config(path)) for path, *_ in loaded]
    _check_seeds(as_trained)
    names = _names(as_trained)
    return [
        Trained(
            name=name,
            workdir=path,
            config=config,
            cfg=vit_config(config.model),
            params=params,
            budgets=evaluation_budgets(config, e_c, skip_infeasible=True),
        )
        for name, (path, config, params) in zip(names, loaded, strict=True)
    ]


def write_report(
    result: SweepResult, output: str | os.PathLike, *, map_images: int = 4
) -> list[Path]:
    """Write sweep.csv, .json, .md and .png, and a picture of the routing of each routed model.

    All is made before the first file is written, and each file appears complete.

    Args:
      result: What `sweep` returned.
      output: Directory; made if it is not there.
      map_images: Images in the routing pictures; 0: no such pictures.

    Returns:
      The files' paths.

    Raises:
      ConfigError: The directory cannot be written.
    """
    directory = output_directory(output)
    summaries = summarise(result.rows)
    files: dict[str, bytes | str] = {
        "sweep.csv": csv_text(result.rows),
        "sweep.json": result.json(),
        "sweep.md": result.markdown(),
        "sweep.png": png(accuracy_figure(summaries)),
    }
    drawn = set()
    for model in result.models:
        if map_images and model.cfg.method in ("mone", "mod") and model.name not in drawn:
            drawn.add(model.name)
            name = re.sub(r"[^\w.-]+", "_", model.name)
            files[f"routing_{name}.png"] = png(draw_routing(model, map_images))
    return write_files(directory, files)


def draw_routing(model: Trained, num_images: int = 4) -> Any:
    """Draw which expert each patch goes to, for the first images of different classes.

    Args:
      model: A model with a router.
      num_images: Rows of the picture.

    Returns:
      A matplotlib figure, of at most five budgets.
    """
    from mone.data import dataset_info

    images, labels = _first_of_each_class(model.config, num_images)
    budgets = [e_c for e_c in model.budgets if e_c < 1] or list(model.budgets)
    if len(budgets) > 5:
        budgets = [budgets[i] for i in np.linspace(0, len(budgets) - 1, 5).round().astype(int)]
    maps = {
        e_c: routing_maps(model.config, model.params, model.budgets[e_c], images) for e_c in budgets
    }
    names = dataset_info(model.config.data).class_names
    captions = [names[label] if names else f"class {label}" for label in labels]
    shown = pixels(images, model.config)
    layer = model.cfg.router_layers[0] if model.cfg.method == "mone" else model.cfg.mod_every - 1
    what = "expert of each patch" if model.cfg.method == "mone" else "patches processed"
    title = f"{model.name}: {what}, router of block {layer + 1}"
    return routing_figure(model.cfg, shown, maps, captions=captions, title=title)


def environment() -> dict[str, Any]:
    """Return versions and machine, for reports."""
    device = jax.devices()[0]
    return {
        "jax": jax.__version__,
        "python": platform.python_version(),
        "platform": device.platform,
        "device": device.device_kind,
        "num_devices": jax.device_count(),
        "cpu_count": os.cpu_count(),
    }


def _machine(env: dict[str, Any]) -> str:
    where = f"{env['cpu_count']} CPU cores" if env["platform"] == "cpu" else f"one {env['device']}"
    return f"Throughput: {where}, JAX {env['jax']}, Python {env['python']}; data loading apart."


def _time_all(
    models: Sequence[Trained], batch_sizes: Sequence[int], rounds: int, report: Progress
) -> dict[tuple[int, float], dict[int, Timing]]:
    """Time every model (by its place) at every budget."""
    programs = {
        (index, e_c): Program(model.cfg, model.params, counts)
        for index, model in enumerate(models)
        for e_c, counts in model.budgets.items()
    }
    if not batch_sizes:
        return {name: {} for name in programs}
    return measure_throughput(programs, batch_sizes=batch_sizes, rounds=rounds, on_progress=report)


def _rows(model: Trained, router: str, timings: dict[float, dict[int, Timing]]) -> list[Row]:
    from mone.data import eval_batches

    batches = eval_batches(model.config)
    full = dense_macs(model.cfg).total
    rows = []
    for e_c, counts in model.budgets.items():
        score = evaluate(
            model.config, model.params, counts=counts, batches=batches, router=router,
            key_seed=model.config.seed,
        )  # fmt: skip
        macs = count_macs(model.cfg, counts).total
        rows.append(
            Row(
                model=model.name,
                method=model.cfg.method,
                workdir=str(model.workdir),
                seed=model.config.seed,
                e_c=e_c,
                realised_e_c=realised_capacity(model.cfg, counts),
                counts=counts,
                macs=macs,
                mac_share=macs / full,
                router=router,
                timings=timings[e_c],
                **score,
            )
        )
    return rows


def _names(runs: Sequence[tuple[Path, ConfigDict]]) -> list[str]:
    """Return each run's name: its experiment's, with the directory's where that is ambiguous."""
    identities = [_identity(config) for _, config in runs]
    taken: dict[str, set[str]] = {}
    for (_, config), identity in zip(runs, identities, strict=True):
        taken.setdefault(config.name, set()).add(identity)
    first: dict[str, str] = {}
    names = []
    for (path, config), identity in zip(runs, identities, strict=True):
        name = config.name or path.name
        if len(taken[config.name]) > 1:
            label = f"{name} ({path.name})"
            if label in first.values() and identity not in first:  # The same last folder.
                label = f"{name} ({path})"
            name = first.setdefault(identity, label)
        names.append(name)
    return names


def _check_seeds(runs: Sequence[tuple[Path, ConfigDict]]) -> None:
    """Refuse to count one training twice: mean and spread would be over copies."""
    seen: dict[tuple[str, int], Path] = {}
    for path, config in runs:
        key = (_identity(config), config.seed)
        if (other := seen.get(key)) is not None:
            raise ConfigError(
                f"{path} and {other} are the same experiment with the same seed={config.seed}; "
                "give each once, or train with another seed."
            )
        seen[key] = path


def _identity(config: ConfigDict) -> str:
    """Return what makes a run another experiment: everything but its seed, logging and devices.

    A run may start from another one of its own seed, so numbers in that directory's name do not
    count.
    """
    from mone.training.workdir import MAY_CHANGE

    other, fresh = config.copy_and_resolve_references(), base()
    with other.unlocked():
        other.seed = 0
        for field in MAY_CHANGE:
            section, _, name = field.rpartition(".")
            owner, default = (other[section], fresh[section]) if section else (other, fresh)
            owner[name] = default[name]
        other.checkpoint.init_from = re.sub(r"\d+", "", config.checkpoint.init_from)
    return config_lib.to_json(other)


def _check_same_data(runs: Sequence[tuple[Path, ConfigDict]]) -> None:
    """Refuse to compare accuracies on different images."""

    def data(config: ConfigDict) -> tuple[str, ...]:
        return tuple(str(config.data[name]) for name in ("source", "name", "eval_split"))

    first_path, first = runs[0]
    for path, config in runs[1:]:
        if data(config) != data(first):
            raise ConfigError(
                f"{path} was trained on other data than {first_path}: (source, name, eval_split) "
                f"is {data(config)} and {data(first)}; compare models of one data set."
            )


def _moved_data(models: Sequence[Trained]) -> list[str]:
    """Return a warning if data lies in several places: only its reader knows if it is the same."""
    paths = list(dict.fromkeys(model.config.data.path for model in models))
    if len(paths) < 2:
        return []
    listed = ", ".join(repr(path) for path in paths)
    return [
        f"Evaluated on data in several places, taken for copies of one set: data.path {listed}."
    ]


def _unreadable(rows: Sequence[Row]) -> list[str]:
    """Return a warning if images of the split could not be read."""
    most = max(rows, key=lambda row: row.unreadable)
    if not most.unreadable:
        return []
    total = most.num_examples + most.unreadable
    return [f"{most.unreadable} of {total} images could not be read and do not count."]


def _left_out(models: Sequence[Trained], e_c: Sequence[float] | None) -> list[str]:
    """Return a sentence for each model that cannot do all of the budgets asked for."""
    notes = {}
    for model in models:
        wanted = model.config.eval.e_c if e_c is None else e_c
        missing = sorted({float(value) for value in wanted} - set(model.budgets))
        if missing and model.cfg.method in ("mone", "mod"):
            low = min(model.budgets)
            notes[model.name] = (
                f"{model.name} has no budget {_listed(missing)}: its lowest here is {low:g}."
            )
    return list(notes.values())


def _busy(rows: Sequence[Row]) -> list[str]:
    """Return a warning for each batch size at which repeated timings disagree."""
    notes = []
    for size in rows[0].timings:
        spread = float(np.median([row.timings[size].spread for row in rows]))
        if spread > _BUSY:
            notes.append(
                f"Throughput at batch {size} is rough: the machine was busy (the middle half of "
                f"the timings spreads over {100 * spread:.0f} % of their median)."
            )
    return notes


def _listed(values: Any) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _first_of_each_class(config: ConfigDict, number: int) -> tuple[np.ndarray, list[int]]:
    """Return the first images of different classes, filled up with what comes first."""
    from mone.data import eval_batches

    batch = next(iter(eval_batches(config)))
    real = np.flatnonzero(batch["mask"] > 0)
    labels = batch["label"]
    _, first = np.unique(labels[real], return_index=True)
    order = [*sorted(first), *(i for i in range(len(real)) if i not in set(first))]
    chosen = real[np.array(order[:number], int)]
    return batch["image"][chosen], [int(label) for label in labels[chosen]]
