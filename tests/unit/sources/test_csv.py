"""CSV as a source: rows, types, bad rows, positions."""

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

from penstock import Fixed, adaptive_flat_map, collect, for_each, read_csv, route
from penstock.streams.base.errors import BadLine, BuildError, CannotOpen
from penstock.streams.io.inputs.csv_rows import RowSplitter
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.testing import run_virtual
from penstock.streams.testing.plugin import Run

TEXTS = st.text(st.sampled_from('ab,"\n\r \t;é'), max_size=6)


async def read(source: Flowable[Any]) -> list[Any]:
    values: list[Any] = []
    await source.to(collect(values)).run()
    return values


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "some.csv"


def test_the_first_row_names_the_columns_of_the_others(run: Run, file: Path) -> None:
    file.write_text('\ufeffid,"the name"\r\n7,"a, ""b""\nc"\r\n\r\n8,\r\n')
    assert run(read(read_csv(file))) == [
        {"id": "7", "the name": 'a, "b"\nc'},
        {"id": "8", "the name": ""},
    ]


def test_columns_name_those_of_a_file_without_a_header_and_tabs_may_separate_them(
    run: Run, file: Path
) -> None:
    file.write_text('7\ta,b\n8\t"c\td"\n')
    values = run(read(read_csv(file, columns=["id", "x"], delimiter="\t")))
    assert values == [{"id": "7", "x": "a,b"}, {"id": "8", "x": "c\td"}]


def test_types_convert_the_texts_of_their_columns(run: Run, file: Path) -> None:
    file.write_text("id,price,day,ok\n7,1.5,2026-11-30,yes\n8,,2026-12-01,False\n")
    types = {"id": int, "price": float | None, "day": date, "ok": bool}
    assert run(read(read_csv(file, types=types))) == [
        {"id": 7, "price": 1.5, "day": date(2026, 11, 30), "ok": True},
        {"id": 8, "price": None, "day": date(2026, 12, 1), "ok": False},
    ]


@dataclass
class Order:
    id: int
    price: float | None = None


def test_rows_are_objects_of_a_dataclass_or_what_a_function_makes(run: Run, file: Path) -> None:
    file.write_text("id,other\n7,x\n")
    assert run(read(read_csv(file, types=Order))) == [Order(7)]
    assert run(read(read_csv(file, types=lambda row: row["other"]))) == ["x"]


def test_bad_rows_are_named_by_their_numbers_and_their_neighbours_are_read(
    run: Run, file: Path
) -> None:
    file.write_text('id,n\n1,1\n2\n3,x\n4,"4"5\n"5\n\xff,5"\n6,6\n')
    letters: list[Any] = []
    source = read_csv(file, types={"n": int}, on_bad_line=route(collect(letters)))
    assert [row["id"] for row in run(read(source))] == ["1", "6"]
    told = [str(letter.error) for letter in letters]
    assert "line 3 has 1 fields, and the header has 2" in told[0]
    assert "line 4 has 'x' in column 'n', which is not a whole number" in told[1]
    assert "line 5 is not a row of CSV" in told[2]


def test_a_quotation_mark_that_is_not_closed_costs_only_its_own_line(run: Run, file: Path) -> None:
    file.write_text("id,n\n1,1\n2,2\n" + '3,"\n' + "4,4\n" * 50)
    values = run(read(read_csv(file)))
    assert [row["id"] for row in values] == ["1", "2", *["4"] * 50]
    values = run(read(read_csv(file, max_line=20)))
    assert [row["id"] for row in values] == ["1", "2", *["4"] * 50]
    with pytest.raises(BadLine, match="line 4 is not a row"):
        run(read(read_csv(file, on_bad_line="stop")))


@pytest.mark.parametrize(
    ("text", "types", "message"),
    [
        ("id,id\n1,2\n", None, "more than one column 'id'"),
        ("id\n1\n", {"n": int}, "names no column 'n'; it has: id"),
        ('id,"n\n', None, "first row is bad"),
        ("n\n1\n", Order, "names no column 'id'"),
    ],
)
def test_a_header_that_cannot_be_used_ends_the_run(
    run: Run, file: Path, text: str, types: Any, message: str
) -> None:
    file.write_text(text)
    with pytest.raises(CannotOpen, match=message):
        run(read(read_csv(file, types=types)))


def test_options_that_make_no_sense_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"delimiter": ""},
        {"delimiter": '"'},
        {"delimiter": "é"},
        {"types": 3},
        {"types": {"n": list}},
        {"columns": []},
        {"columns": [3]},
    ]
    for options in wrong:
        with pytest.raises(BuildError, match="read_csv"):
            read_csv("some.csv", **options)


def test_files_with_other_columns_are_read_by_their_own_headers(run: Run, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv.gz").write_bytes(gzip.compress(b"b,a\n3,4\n"))
    (tmp_path / "3.csv").write_text("")
    values = run(read(read_csv(f"{tmp_path}/*.csv*")))
    assert values == [{"a": "1", "b": "2"}, {"b": "3", "a": "4"}]


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=12), st.integers(1, 9), st.booleans())
def test_the_module_csv_reads_the_same_however_the_bytes_come(
    rows: list[tuple[str, str]], size: int, quoted: bool
) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL).writerows(rows)
    data = text.getvalue().encode()
    splitter = RowSplitter(1000, b",")
    found = [row for at in range(0, len(data), size) for row in splitter.feed(data[at : at + size])]
    found += splitter.end()
    assert b"".join(bytes(row) + b"\n" for row in found) == data  # type: ignore[arg-type]
    again = [next(csv.reader([bytes(row).decode()], strict=True)) for row in found]  # type: ignore[arg-type]
    assert again == [list(row) for row in rows]


@given(
    st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=20),
    st.lists(st.integers(1, 8), max_size=5),
    st.booleans(),
)
def test_however_it_is_cut_into_runs_each_row_is_read_once(
    tmp_path_factory: Any, rows: list[tuple[str, str]], cuts: list[int], packed: bool
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    text = io.StringIO()
    csv.writer(text).writerows([("the id", "n"), *rows])
    file = folder / ("some.csv.gz" if packed else "some.csv")
    data = text.getvalue().encode()
    file.write_bytes(gzip.compress(data) if packed else data)
    source = read_csv(file, position=folder / "some.position")

    def part(count: int) -> list[Any]:
        values: list[Any] = []

        async def first() -> None:
            async for value in source:
                values.append(value)
                if len(values) >= count:
                    break

        run_virtual(first())
        return values

    seen: list[Any] = []
    for count in cuts:
        found = part(count)
        # The last one was not finished: its reader left the loop.
        seen += found[:-1] if len(found) >= count else found
    seen += run_virtual(read(source))
    assert [(row["the id"], row["n"]) for row in seen] == rows


def test_rows_that_were_finished_behind_an_unfinished_one_are_not_read_again(
    run: Run, file: Path, tmp_path: Path
) -> None:
    file.write_text("id\n" + "".join(f'"{n}\n"\n' for n in range(40)))
    done: list[str] = []

    async def handler(row: dict[str, str]) -> str:
        if row["id"] == "23\n":
            raise RuntimeError
        return row["id"]

    source = read_csv(file, position=tmp_path / "place")
    work = source.pipe(adaptive_flat_map(handler, Fixed(4)))
    with pytest.raises(RuntimeError):
        run(work.to(for_each(done.append)).run())
    again = [row["id"] for row in run(read(source))]
    assert sorted(done + again, key=int) == [f"{n}\n" for n in range(40)]
