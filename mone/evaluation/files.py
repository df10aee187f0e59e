"""Writing report files so that none is ever seen half written."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from mone.errors import ConfigError


def output_directory(path: str | os.PathLike) -> Path:
    """Create a directory for reports, so that a bad path fails before any work is done.

    Raises:
      ConfigError: It is not a directory and cannot become one, or cannot be written.
    """
    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"output = {path}: cannot create this directory ({error}).") from error
    if not os.access(directory, os.W_OK):
        raise ConfigError(f"output = {path}: this directory is not writable.")
    return directory


def write_files(directory: Path, files: Mapping[str, bytes | str]) -> list[Path]:
    """Write files into a directory, each complete or not at all.

    Args:
      directory: Where to; it exists.
      files: Contents by file name; text is written as UTF-8.

    Returns:
      Their paths.
    """
    return [_write(directory / name, content) for name, content in files.items()]


def _write(path: Path, content: bytes | str) -> Path:
    data = content.encode() if isinstance(content, str) else content
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
