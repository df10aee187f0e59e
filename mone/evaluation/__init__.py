"""Accuracy, cost, latency, sweeps and reports.

The names below are imported on first use, so that counting MACs does not wait for matplotlib.
"""

import importlib
from typing import Any

_MODULE_OF = {
    "Macs": "cost",
    "Memory": "memory",
    "Program": "latency",
    "Row": "report",
    "Summary": "report",
    "SweepResult": "sweeps",
    "Timing": "latency",
    "accuracy_figure": "plots",
    "activation_bytes": "memory",
    "compiled_macs": "program",
    "count_macs": "cost",
    "count_parameters": "memory",
    "dense_macs": "cost",
    "e_c_for_macs": "cost",
    "evaluate": "accuracy",
    "evaluation_budgets": "budgets",
    "measure_throughput": "latency",
    "routing_figure": "maps",
    "routing_maps": "maps",
    "summarise": "report",
    "sweep": "sweeps",
    "traced_macs": "program",
    "training_memory": "memory",
    "write_report": "sweeps",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
