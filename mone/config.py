"""Experiment configurations: load by name or path, override, validate, save.

The schema with every field's default, unit and valid values is `configs/base.py`.
"""

import difflib
import importlib
import importlib.util
import json
import re
import traceback
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict

from mone.config_checks import problems
from mone.config_values import MisfitError, fields, fit, parse, unknown
from mone.configs.base import base
from mone.errors import ConfigError

__all__ = ["from_json", "load", "names", "override", "to_json", "validate"]

_PACKAGE = "mone.configs"


def load(name_or_path: str, overrides: Sequence[str] = ()) -> ConfigDict:
    """Return the configuration of an experiment, with overrides applied.

    Args:
      name_or_path: A shipped experiment (`imagenet1k/mone`, see `names()`) or the path of a
        `.py` file that defines `get_config(arg: str = "") -> ConfigDict`; either may carry the
        argument after a colon: `imagenet1k/mone:Ti/16,e_c=0.5`.
      overrides: See `override`.

    Returns:
      A locked ConfigDict that holds every field of the schema, correctly typed. It is not
      validated: see `validate`.

    Raises:
      ConfigError: no such experiment, its file fails, or a field is unknown or of another type.
    """
    stem, arg = _split_argument(name_or_path)
    config = _conform(_run(stem, arg), f"config {stem!r}")
    config.name = config.name or Path(stem).stem
    return override(config, overrides)


def override(
    config: ConfigDict, overrides: Sequence[str], *, sections: Sequence[str] | None = None
) -> ConfigDict:
    """Return a copy of a configuration with some of its fields replaced.

    Args:
      config: Holds every field of the schema.
      overrides: `field.sub=value` strings, applied in order. Values are read by the field's
        type: numbers, `true` / `false`, strings as they are, tuples as `(0.2,0.4)` or
        `0.2,0.4`.
      sections: Sections whose fields may be replaced, such as ("data", "eval"): the others
        belong to a run that has been trained. None: any field.

    Returns:
      A locked ConfigDict; it is not validated: see `validate`.

    Raises:
      ConfigError: a field is unknown, of another type, or outside `sections`.
    """
    config = config.copy_and_resolve_references()
    for text in overrides:
        _override(config, text, sections)
    return config.lock()


def validate(config: ConfigDict) -> None:
    """Check that the fields agree with each other.

    Raises:
      ConfigError: lists all problems at once; each names the field, its value and what would
        be valid.
    """
    found = problems(config)
    if len(found) == 1:
        raise ConfigError(found[0])
    if found:
        raise ConfigError(f"{len(found)} problems:" + "".join(f"\n  {text}" for text in found))


def names() -> list[str]:
    """Return the shipped experiments as `group/file`, sorted; none of them is imported."""
    return sorted(
        f"{group.name}/{Path(file.name).stem}"
        for group in resources.files(_PACKAGE).iterdir()
        if group.is_dir()
        for file in group.iterdir()
        if file.name.endswith(".py") and not file.name.startswith("_")
    )


def to_json(config: ConfigDict) -> str:
    """Return `config` as JSON text, one field a line, ending with a newline."""
    return json.dumps(config.to_dict(), indent=2, allow_nan=False) + "\n"


def from_json(text: str) -> ConfigDict:
    """Return the configuration that `to_json` wrote, tuples and floats as they were.

    A field that the text does not have (written before it existed) takes its default.

    Raises:
      ConfigError: the text is not JSON, or has a field that is unknown or of another type.
    """
    try:
        tree = json.loads(text)
    except ValueError as e:
        raise ConfigError(f"not a configuration in JSON: {e}") from e
    return _conform(tree, "configuration in JSON").lock()


def _split_argument(name_or_path: str) -> tuple[str, str]:
    """Split at the colon before the argument; a path may hold colons of its own."""
    path = re.fullmatch(r"(.*?\.py)(?::(.*))?", name_or_path, re.DOTALL)
    if path:
        return path[1], path[2] or ""
    stem, _, arg = name_or_path.partition(":")
    return stem, arg


def _run(stem: str, arg: str) -> Any:
    """Return what `get_config` of a shipped experiment or of a file returns."""
    if stem.endswith(".py"):
        if not Path(stem).is_file():
            raise ConfigError(f"config {stem!r}: no such file")
    elif stem not in names():
        raise ConfigError(_no_such_config(stem))
    try:
        get_config = getattr(_module(stem), "get_config", None)
        if get_config is None:
            raise ConfigError("it does not define get_config(arg='')")
        return get_config(arg) if arg else get_config()
    except ValueError as e:  # Its own words about an argument or a field.
        raise ConfigError(f"config {stem!r}: {e}") from e
    except Exception as e:
        raise ConfigError(f"config {stem!r} fails: {_last_line(e)}") from e


def _module(stem: str) -> ModuleType:
    if not stem.endswith(".py"):
        return importlib.import_module(f"{_PACKAGE}.{stem.replace('/', '.')}")
    path = Path(stem)
    spec = importlib.util.spec_from_file_location(f"_mone_config_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _no_such_config(stem: str) -> str:
    close = difflib.get_close_matches(stem, names(), n=3)
    if not close:
        close = [name for name in names() if stem and stem in name]
    hint = f"did you mean {' or '.join(close)}?" if close else f"shipped: {', '.join(names())}"
    return f"config {stem!r}: no such experiment; {hint} (or give the path of a .py file)"


def _last_line(error: Exception) -> str:
    """Return where a user's file failed and why, in one line."""
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg} (line {error.lineno})"
    frame = traceback.extract_tb(error.__traceback__)
    own = [f for f in frame if "ml_collections" not in f.filename][-1]
    why = str(error).split("Other fields present")[0].strip("'\" ")
    return f"{type(error).__name__}: {why} ({Path(own.filename).name}, line {own.lineno})"


def _conform(given: Any, source: str) -> ConfigDict:
    """Return `given` in the schema: unknown fields refused, types fitted, the rest defaults."""
    if not isinstance(given, ConfigDict | Mapping):
        raise ConfigError(f"{source}: {type(given).__name__} in place of a ConfigDict")
    config = base()
    defaults = dict(fields(config))
    found = []
    for name, value in fields(given):
        try:
            if name not in defaults:
                raise MisfitError(unknown(name, defaults))
            _set(config, name, fit(name, value, defaults[name]))
        except MisfitError as e:
            found.append(str(e))
    if found:
        raise ConfigError(f"{source}: {'; '.join(found)}")
    return config


def _override(config: ConfigDict, given: str, sections: Sequence[str] | None) -> None:
    """Apply one `field.sub=value`."""
    name, equals, text = given.partition("=")
    name = name.strip()
    defaults = dict(fields(base()))
    if not equals:
        raise ConfigError(f"override {given!r}: must be field=value")
    if name not in defaults:
        inside = [known for known in defaults if known.startswith(f"{name}.")]
        if inside:
            raise ConfigError(f"{name} is a section; set one of its fields: {', '.join(inside)}")
        raise ConfigError(unknown(name, defaults))
    if sections is not None and name.split(".")[0] not in sections:
        raise ConfigError(
            f"{name}={text}: a trained run keeps this field; those of "
            f"{' and '.join(sections)} can be changed{_counterpart(name, sections)}"
        )
    try:
        _set(config, name, parse(name, text, defaults[name]))
    except MisfitError as e:
        raise ConfigError(str(e)) from e


def _counterpart(name: str, sections: Sequence[str]) -> str:
    """Return a hint at the field of the same name in one of the sections."""
    leaf = name.rsplit(".", 1)[-1]
    found = [k for k, _ in fields(base()) if k in [f"{section}.{leaf}" for section in sections]]
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _set(config: ConfigDict, name: str, value: Any) -> None:
    *sections, leaf = name.split(".")
    for section in sections:
        config = config[section]
    with config.ignore_type():  # `fit` and `parse` have seen to the type.
        config[leaf] = value
