"""The argument string of `get_config`: `mone:B/16,e_c=0.5`."""

from types import SimpleNamespace
from typing import Any


def parse(arg: str, **defaults: Any) -> SimpleNamespace:
    """Read `KEY=VALUE` options separated by commas; the first option may be given bare.

    Args:
      arg: What follows the colon of a configuration's name; "" for all defaults.
      **defaults: Every option with its default, which fixes its type (str, int or float).

    Returns:
      The options as attributes.

    Raises:
      ValueError: an option is unknown, given twice or of another type.
    """
    first = next(iter(defaults), "")
    given: dict[str, Any] = {}
    for i, item in enumerate(part.strip() for part in arg.split(",") if part.strip()):
        key, equals, text = item.partition("=")
        if not equals and i == 0:
            key, text = first, item
        elif not equals:
            raise ValueError(f"argument {item!r} must be KEY=VALUE; {_valid(defaults)}")
        if key not in defaults:
            raise ValueError(f"argument {item!r} is unknown; {_valid(defaults)}")
        if key in given:
            raise ValueError(f"argument {key!r} is given twice")
        kind = type(defaults[key])
        try:
            given[key] = kind(text)
        except ValueError:
            raise ValueError(f"argument {item!r}: must be of type {kind.__name__}") from None
    return SimpleNamespace(**{**defaults, **given})


def _valid(defaults: dict[str, Any]) -> str:
    return "valid: " + (", ".join(f"{key}={value}" for key, value in defaults.items()) or "none")
