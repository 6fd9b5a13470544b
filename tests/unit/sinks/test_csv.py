"""CSV as a sink."""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import collect, from_iterable, read_csv, route, write_csv
from penstock.streams.base.errors import BuildError, CannotOpen
from penstock.streams.testing import run_virtual
from penstock.streams.testing.plugin import Run


async def write(values: list[Any], path: Path, **options: Any) -> Any:
    return await from_iterable(values).to(write_csv(path, **options)).run()


@dataclass
class Order:
    id: int
    day: date


def test_the_names_of_the_first_value_are_the_header(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "some.csv"
    values = [{"id": 7, "x": 'a,"b"\nc'}, {"x": None, "id": 1.5}, {"id": True}]
    run(write([*values, {"x": ["é", 1], "id": date(2026, 1, 2)}], file))
    assert file.read_text() == ('id,x\n7,"a,""b""\nc"\n1.5,\ntrue,\n2026-01-02,"[""é"",1]"\n')


def test_columns_give_the_order_and_tabs_may_separate_them(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "some.tsv"
    run(write([Order(7, date(2026, 1, 2))], file, columns=["day", "id"], delimiter="\t"))
    assert file.read_text() == "day\tid\n2026-01-02\t7\n"


def test_a_value_with_another_column_or_without_names_fails_its_event(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "some.csv"
    letters: list[Any] = []
    values = [3, {"a": 1}, {"a": 2, "b": 3}, {"c": 1}, {"a": float("nan")}, {"a": object()}]
    run(write(values, file, on_error=route(collect(letters))))
    assert file.read_text() == "a\n1\nnan\n"
    told = [str(letter.error) for letter in letters]
    assert "needs names" in told[0]
    assert "it has 'b', and the columns are a" in told[1]
    assert len(told) == 4


@pytest.mark.parametrize("name", ["some.csv", "some.csv.gz"])
def test_what_is_appended_has_the_columns_of_the_file(
    run: Run, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / name
    run(write([{"a": 1, "b": 2}], file, append=True))
    run(write([{"b": 4, "a": 3}], file, append=True))
    content = gzip.decompress(file.read_bytes()) if name.endswith("gz") else file.read_bytes()
    assert content == b"a,b\n1,2\n3,4\n"
    with pytest.raises(CannotOpen, match="its columns are a, b, and not b"):
        run(write([], file, append=True, columns=["b"]))
    assert not caplog.text


@pytest.mark.parametrize("cut", ['"x\ny', "12", '1,"2', "1,2"])
def test_a_row_that_was_cut_off_is_removed_before_others_are_appended(
    run: Run, tmp_path: Path, cut: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "some.csv"
    file.write_text('a,b\n"0\n0",0\n' + cut)
    run(write([{"a": 3, "b": 4}], file, append=True))
    assert file.read_text() == 'a,b\n"0\n0",0\n3,4\n'
    assert "bytes were removed" in caplog.text


def test_options_that_make_no_sense_are_refused() -> None:
    wrong: list[dict[str, Any]] = [{"delimiter": "ab"}, {"columns": "ab"}, {"columns": []}]
    for options in wrong:
        with pytest.raises(BuildError, match="write_csv"):
            write_csv("some.csv", **options)


@given(st.lists(st.fixed_dictionaries({"a": st.text(), "b,c": st.text()}), min_size=1, max_size=20))
def test_what_is_written_is_read_again(tmp_path_factory: Any, values: list[dict[str, str]]) -> None:
    file = tmp_path_factory.mktemp("again") / "some.csv"
    run_virtual(write(values, file))
    found: list[Any] = []
    run_virtual(read_csv(file).to(collect(found)).run())
    assert found == values
    assert list(csv.DictReader(io.StringIO(file.read_bytes().decode(), newline=""))) == values
