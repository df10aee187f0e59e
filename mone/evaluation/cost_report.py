"""What `mone cost` tells: parameters, MACs and memory of a configuration, from shapes alone."""

from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from mone.evaluation.budgets import evaluation_budgets
from mone.evaluation.cost import count_macs, dense_macs, e_c_for_macs
from mone.evaluation.memory import activation_bytes, count_parameters, training_memory
from mone.evaluation.report import mac_unit
from mone.models import realised_capacity, vit_config


def cost_report(
    config: ConfigDict,
    *,
    e_c: Sequence[float] | None = None,
    gmacs: Sequence[float] | None = None,
) -> dict[str, Any]:
    """Return the cost of a configuration's model at some budgets; nothing is trained or compiled.

    Args:
      config: The experiment.
      e_c: Budgets; None: those that it is evaluated at, unless `gmacs` is given.
      gmacs: Targets in GMAC an image, each turned into the largest budget that costs no more.

    Returns:
      "parameters", "dense_macs" (of the dense ViT of the same sizes), "training_memory" (bytes by
      part for a step at its widest budget, see `mone.evaluation.training_memory`) and "budgets":
      "e_c", "realised_e_c", "counts", "macs" (by part), "total_macs", "share_of_dense" and
      "activation_bytes" (saved for the backward pass, for each image).

    Raises:
      ConfigError: A budget or a target is infeasible; it names what is feasible.
    """
    from mone.training.budgets import BudgetSchedule

    cfg, b = vit_config(config.model), config.budget
    allocation = {"allocation": b.allocation, "delta": b.delta, "beta": b.beta}
    wanted = [] if e_c is None and gmacs else evaluation_budgets(config, e_c)
    wanted = [*wanted, *(e_c_for_macs(cfg, 1e9 * g, **allocation) for g in gmacs or ())]
    full = dense_macs(cfg).total
    step = BudgetSchedule(config, cfg, total_steps=1).choices[0]
    rows = []
    for value, counts in evaluation_budgets(config, wanted).items():
        macs = count_macs(cfg, counts)
        rows.append(
            {
                "e_c": value,
                "realised_e_c": realised_capacity(cfg, counts),
                "counts": counts,
                "macs": macs.parts(),
                "total_macs": macs.total,
                "share_of_dense": macs.total / full,
                "activation_bytes": activation_bytes(cfg, counts),
            }
        )
    return {
        "name": config.name,
        "method": cfg.method,
        "parameters": count_parameters(cfg),
        "dense_macs": full,
        "batch_size": config.batch_size,
        "training_memory": training_memory(config, step).parts(),
        "budgets": rows,
    }


def cost_text(report: dict[str, Any]) -> tuple[list[str], list[list[str]], list[str]]:
    """Return a cost report as text: the table's header and rows, and lines to go above it."""
    unit, unit_name = mac_unit([report["dense_macs"]])
    memory = report["training_memory"]
    parts = ", ".join(f"{name} {_bytes(size)}" for name, size in memory.items() if size)
    lines = [
        f"{report['name']} ({report['method']}): {report['parameters']:,} parameters; the dense "
        f"ViT of its sizes costs {report['dense_macs'] / unit:.4g} {unit_name} an image.",
        f"Training memory, estimated, all devices together, batch {report['batch_size']}: "
        f"{_bytes(sum(memory.values()))} ({parts}).",
        f"Below, for one image: tokens by expert (narrow to wide), {unit_name} (matrix products; "
        "norms, softmax",
        "and GELU are not counted) in total, as a share of dense and by part, and MiB of "
        "activations in training.",
    ]
    parts = {
        "embed": ["patch_embed"], "QKV,out": ["attention_proj"], "QK'V": ["attention_product"],
        "FFN": ["ffn"], "other": ["router", "pool", "head"],
    }  # fmt: skip
    header = ["e_c", "tokens", unit_name, "share", *parts, "MiB"]
    rows = []
    for row in report["budgets"]:
        by_part = [sum(row["macs"][name] for name in names) / unit for names in parts.values()]
        rows.append(
            [
                f"{row['e_c']:.3g}",
                "/".join(map(str, row["counts"])),
                f"{row['total_macs'] / unit:.3g}",
                f"{row['share_of_dense']:.2f}",
                *(f"{value:.2g}" for value in by_part),
                f"{row['activation_bytes'] / 2**20:.3g}",
            ]
        )
    return header, rows, lines


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.3g} GiB" if size < 1000 else f"{size:,.0f} GiB"
