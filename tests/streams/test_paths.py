"""The file that is read is never the file that is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sinks import write_jsonl
from sources import read_jsonl
from streams.errors import BuildError
from streams.paths import refuse_same_file
from streams.pipeline import run
from streams.standard import input_path, output_path


def test_a_pipeline_that_would_write_into_its_input_is_refused_and_destroys_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"n":1}\n')
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    with pytest.raises(BuildError, match="are the same file"):
        run(read_jsonl(path).to(write_jsonl(link)))
    assert path.read_text() == '{"n":1}\n'


def test_what_the_command_redirects_to_one_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("{}\n")
    inside, outside = input_path.set(path), output_path.set(path)
    try:
        with pytest.raises(BuildError, match="destroy"):
            refuse_same_file("-", "-")
    finally:
        input_path.reset(inside)
        output_path.reset(outside)


def test_different_files_missing_files_and_devices_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("{}\n")
    refuse_same_file(path, tmp_path / "missing.jsonl")
    refuse_same_file(None, path)
    refuse_same_file(os.devnull, os.devnull)
