"""Typing of configuration values: what fits a field, and how text becomes a value."""

import ast
import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

# Fields whose default is an empty tuple do not show the type of their elements.
_EMPTY_TUPLE_ELEMENTS = {"model.widths": int}


class MisfitError(ValueError):
    """A value does not fit its field; the message says what would."""


def fields(section: ConfigDict | Mapping, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield `(dotted name, value)` of every field below `section`."""
    for key in section:
        value = section[key]
        if isinstance(value, ConfigDict | Mapping):
            yield from fields(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def unknown(name: str, known: Iterable[str]) -> str:
    """Return the message about a field that does not exist, with close ones that do."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if not close:  # The right field under another section, or with the section left out.
        leaf = name.rsplit(".", 1)[-1]
        leaves = {k.rsplit(".", 1)[-1] for k in known}
        near = difflib.get_close_matches(leaf, leaves, n=2, cutoff=0.75)
        close = [k for k in known if k.rsplit(".", 1)[-1] in near]
    if close:
        return f"{name}: no such field; did you mean {' or '.join(close)}?"
    section = name.rsplit(".", 1)[0] + "." if "." in name else ""
    siblings = [k for k in known if k.startswith(section)] or known
    shown = sorted({k[len(section) :].split(".")[0] for k in siblings})
    where = f"in {section[:-1]}" if section and siblings != known else "at the top"
    return f"{name}: no such field; valid {where}: {', '.join(shown)}"


def fit(name: str, value: Any, default: Any) -> Any:
    """Return `value` as the type that field `name` has.

    Whole numbers become floats and lists become tuples where the field asks for it; nothing
    else is converted.

    Args:
      name: Dotted name of the field.
      value: What was given.
      default: The field's default, which fixes its type.

    Raises:
      MisfitError: the value has another type, or is not finite.
    """
    if isinstance(default, tuple):
        if not isinstance(value, tuple | list):
            raise MisfitError(f"{name}={value!r}: must be a tuple, such as {_example(default)}")
        kind = _element_kind(name, default)
        return tuple(_scalar(f"{name}[{i}]", v, kind) for i, v in enumerate(value))
    return _scalar(name, value, type(default))


def parse(name: str, text: str, default: Any) -> Any:
    """Return the value that `text` (from a command line) means for field `name`.

    Args:
      name: Dotted name of the field.
      text: `true` / `false` for a bool, a number, a string as it is (quotes are not stripped),
        or a tuple as `(0.2, 0.4)` or `0.2,0.4`; `()` is the empty one.
      default: The field's default, which fixes its type.

    Raises:
      MisfitError: the text does not fit the field.
    """
    if isinstance(default, str):
        return text
    text = text.strip()
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise MisfitError(f"{name}={text!r}: must be true or false")
        return text.lower() == "true"
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = text
    if isinstance(default, tuple) and not isinstance(value, tuple | list):
        value = () if value == "" else value if isinstance(value, str) else (value,)
    return fit(name, value, default)


def _element_kind(name: str, default: tuple) -> type:
    return type(default[0]) if default else _EMPTY_TUPLE_ELEMENTS[name]


def _scalar(name: str, value: Any, kind: type) -> Any:
    if kind is float and type(value) in (int, float):
        if not math.isfinite(value):
            raise MisfitError(f"{name}={value!r}: must be a finite number")
        return float(value)
    if type(value) is not kind:  # Exact: a bool is an int to isinstance.
        raise MisfitError(f"{name}={value!r}: must be {_KINDS[kind]}")
    return value


_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
}


def _example(default: tuple) -> str:
    return repr(default or (16, 32, 64))
