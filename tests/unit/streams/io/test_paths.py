"""A file that is read, or written, is not overwritten by another output of the pipeline."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Sink,
    adaptive_flat_map,
    collect,
    dead_letters,
    from_iterable,
    latency_histogram,
    read_jsonl,
    route,
    write_jsonl,
)
from penstock.streams.base.errors import BuildError
from penstock.streams.failures.policy import OnError
from penstock.streams.io.paths import input_path, output_path, refuse_same_file
from penstock.streams.pipelines.pipeline import Pipeline, run


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


def _halves(sink: Sink[Any], on_error: OnError = "stop") -> Pipeline:
    return from_iterable(range(4)).pipe(adaptive_flat_map(_half, on_error=on_error)).to(sink)


def _half(number: int) -> int:
    if number % 2:
        raise ValueError(number)
    return number


def test_two_sinks_that_would_write_over_each_other_are_refused_and_destroy_nothing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text("of yesterday\n")
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    pipeline = from_iterable([1]).to(write_jsonl(path), write_jsonl(link))
    with pytest.raises(BuildError, match=r"stage 2 'write_jsonl' and stage 3 .* are the same file"):
        run(pipeline)
    assert path.read_text() == "of yesterday\n"


def test_a_file_that_is_not_there_yet_is_known_by_its_name(tmp_path: Path) -> None:
    new, folder = tmp_path / "new.jsonl", tmp_path / "folder"
    folder.symlink_to(tmp_path)
    pipeline = from_iterable([1]).to(write_jsonl(new), write_jsonl(folder / "new.jsonl"))
    with pytest.raises(BuildError, match="would write over each other"):
        run(pipeline)
    assert not new.exists()


def test_dead_letters_in_the_file_of_the_results_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    pipeline = _halves(write_jsonl(path), route(dead_letters(path)))
    with pytest.raises(BuildError, match="'dead_letters' of stage 2 'adaptive_flat_map' and stage"):
        run(pipeline)


def test_dead_letters_in_the_file_that_is_read_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text("oops\n")
    pipeline = read_jsonl(path, on_bad_line=route(dead_letters(path))).to(collect([]))
    with pytest.raises(BuildError, match="are the same file"):
        run(pipeline)


def test_a_latency_log_in_the_file_of_the_results_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    pipeline = from_iterable([1]).to(write_jsonl(path), latency_histogram(log=path))
    with pytest.raises(BuildError, match="'latency_histogram' would write over each other"):
        run(pipeline)


def test_outputs_that_all_append_may_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    run(_halves(write_jsonl(path, append=True), route(dead_letters(path))))
    assert len(path.read_text().splitlines()) == 4


def test_a_sink_of_dead_letters_may_serve_several_stages(tmp_path: Path) -> None:
    give_up = route(write_jsonl(tmp_path / "dead.jsonl"))
    stages = from_iterable(range(3)).pipe(
        adaptive_flat_map(_half, on_error=give_up), adaptive_flat_map(str, on_error=give_up)
    )
    stages.to(collect([])).check_files()


def test_compressed_outputs_may_not_share_a_file_even_where_they_append(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl.gz"
    pipeline = _halves(write_jsonl(path, append=True), route(dead_letters(path)))
    with pytest.raises(BuildError, match="would write over each other"):
        pipeline.check_files()


def test_outputs_that_are_not_regular_files_may_be_written_by_several(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in os.devnull, pipe:
        from_iterable([1]).to(write_jsonl(path), write_jsonl(path)).check_files()


def test_one_open_descriptor_may_be_written_by_several(tmp_path: Path) -> None:
    with open(tmp_path / "out.jsonl", "wb") as file:
        run(from_iterable([1, 2]).to(write_jsonl(file.fileno()), write_jsonl(file.fileno())))
    assert (tmp_path / "out.jsonl").read_text() == "1\n2\n1\n2\n"


def test_a_descriptor_and_the_name_of_its_file_are_refused_unless_both_append(
    tmp_path: Path,
) -> None:
    path = tmp_path / "out.jsonl"
    with open(path, "wb") as file, open(path, "ab") as appended:
        pipeline = _halves(write_jsonl(file.fileno()), route(dead_letters(path)))
        with pytest.raises(BuildError, match=r"descriptor \d+ are the same file"):
            pipeline.check_files()
        _halves(write_jsonl(appended.fileno()), route(dead_letters(path))).check_files()
