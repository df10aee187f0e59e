import os

import pytest

from mone.errors import ConfigError
from mone.evaluation import files


def test_files_are_written_whole(tmp_path):
    directory = files.output_directory(tmp_path / "a" / "b")
    paths = files.write_files(directory, {"x.txt": "schön", "y.png": b"\x89PNG"})
    assert paths == [directory / "x.txt", directory / "y.png"]
    assert paths[0].read_text(encoding="utf-8") == "schön"
    assert paths[1].read_bytes() == b"\x89PNG"


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    files.write_files(tmp_path, {"x.txt": "old"})

    def fail(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        files.write_files(tmp_path, {"x.txt": "new"})
    assert (tmp_path / "x.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["x.txt"]


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(ConfigError, match="taken"):
        files.output_directory(tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"
