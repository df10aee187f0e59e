"""metrics.jsonl: one JSON object a line, without gaps or duplicates however often a run is killed.

Every line has "step" (steps completed) and "kind" ("train" or "eval").
"""

import json
from pathlib import Path
from typing import Any

from mone.training.workdir import write_atomic

Record = dict[str, Any]


class MetricsLog:
    """Appends records, and drops on opening those of steps that will be run again."""

    def __init__(self, path: Path, step: int):
        """Open the log of a run that continues after `step` completed steps (0: begins)."""
        self._records = [r for r in _read(path) if step > 0 and r["step"] <= step]
        write_atomic(path, "".join(map(_line, self._records)))
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115

    def write(self, kind: str, step: int, values: Record) -> Record:
        """Append a record and return it."""
        record = {"step": step, "kind": kind, **values}
        self._records.append(record)
        self._file.write(_line(record))
        self._file.flush()
        return record

    def find(self, kind: str, step: int) -> Record | None:
        """Return the record of this kind and step, None if there is none."""
        return next((r for r in self._records if (r["kind"], r["step"]) == (kind, step)), None)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _line(record: Record) -> str:
    return json.dumps(record) + "\n"


def _read(path: Path) -> list[Record]:
    """Return all complete records; a line cut short by a kill is left out."""
    records = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and {"step", "kind"} <= record.keys():
            records.append(record)
    return records
