from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Penstock = Callable[..., Any]

PIPELINE = """
import asyncio
from penstock import Fixed, adaptive_flat_map, for_each, read_jsonl

async def work(order):
    await asyncio.sleep(0.002)
    with open(__file__ + ".log", "a") as log:
        print(order["n"], file=log)

pipeline = read_jsonl().pipe(adaptive_flat_map(work, Fixed(2))).to(for_each(lambda _: None))
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "shop.py"
    file.write_text(PIPELINE)
    return file


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    file = tmp_path / "orders.jsonl"
    file.write_text("".join(f'{{"n": {n}}}\n' for n in range(300)))
    return file


def test_each_rate_is_a_line_and_the_handlers_run(
    penstock: Penstock, shop: Path, orders: Path, tmp_path: Path
) -> None:
    # Far from its capacity, and slow enough, that other programs do not end the climb.
    shop.write_text(PIPELINE.replace("0.002", "0.02").replace("Fixed(2)", "Fixed(50)"))
    picture = tmp_path / "turning.svg"
    words = ("turning-point", shop, "--input", orders, "--seconds", 0.1, "--plot", picture)
    result = penstock(*words)
    assert result.status == 0
    light, heading, *rows, last = result.out.splitlines()
    assert light.startswith("light load, one event after the other: T = ")
    assert heading.split() == [
        *("R/s", "ended/s", "T", "ms", "p95", "ms"),
        *("batch", "limit", "utilisation"),
    ]
    assert all(len(row.split()) == 6 for row in rows)
    assert last.startswith("T turns up at ") or "has not turned up" in last
    assert "turning-point runs the handlers and sinks of" in result.err.splitlines()[0]
    assert "300 in, 300 finished" in result.err
    seen = (tmp_path / "shop.py.log").read_text().split()
    assert sorted(map(int, seen)) == list(range(300))
    assert picture.read_text().count("<circle") == len(rows)


def test_a_repeated_file_begins_anew(penstock: Penstock, shop: Path, tmp_path: Path) -> None:
    one = tmp_path / "one.jsonl"
    one.write_text('{"n": 7}\n')
    result = penstock("turning-point", shop, "--input", one, "--repeat", "--seconds", 0.1)
    assert result.status == 0
    assert result.out.splitlines()[-1].startswith("T turns up at ")
    assert set((tmp_path / "shop.py.log").read_text().split()) == {"7"}
    few = penstock("turning-point", shop, "--input", one, "--seconds", 0.1)
    assert "has 1 event, too few" in few.err


def test_bad_lines_are_reported_and_the_exit_status_says_so(
    penstock: Penstock, shop: Path, orders: Path
) -> None:
    orders.write_text(orders.read_text() + "bad\n")
    result = penstock("turning-point", shop, "--input", orders, "--seconds", 0.1)
    assert result.status == 3
    assert "line 301 is not valid JSON" in result.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "the following arguments are required: --input"),
        (["--input", "{folder}/none.jsonl"], "none.jsonl"),
        (["--input", "{folder}/empty.jsonl"], "has no events"),
        (["--input", "{folder}/orders.jsonl", "--plot", "a.png"], "must end in .svg"),
        (["--input", "{folder}/orders.jsonl", "--seconds", "0"], "more than 0"),
        (["--input", "{folder}/orders.jsonl", "--rate", "1e300"], "at most 1,000,000"),
        (["--input", "{folder}/orders.jsonl", "--rate", "0"], "above 0"),
    ],
)
def test_what_cannot_be_measured_is_reported_without_a_traceback(
    penstock: Penstock, shop: Path, orders: Path, tmp_path: Path, words: list[str], told: str
) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    result = penstock("turning-point", shop, *(word.format(folder=tmp_path) for word in words))
    assert result.status == 2
    assert told in " ".join(result.err.split())
    assert "Traceback" not in result.err
    assert not (tmp_path / "shop.py.log").exists()


def test_results_on_standard_output_need_another_place(
    penstock: Penstock, pipeline_file: Path, orders: Path, tmp_path: Path
) -> None:
    words = ("turning-point", pipeline_file, "--input", orders)
    assert "give --output PATH" in penstock(*words).err
    orders.write_text("".join(f'{{"uuid": "{n}", "client_id": {n}}}\n' for n in range(100)))
    results = tmp_path / "results.jsonl"
    result = penstock(*words, "--seconds", 0.1, "--output", results)
    assert result.status == 0
    assert len(results.read_text().splitlines()) == 100


def test_an_error_of_the_pipeline_ends_it_with_status_1(
    penstock: Penstock, shop: Path, orders: Path
) -> None:
    shop.write_text(PIPELINE.replace('order["n"]', 'order["m"]'))
    result = penstock("turning-point", shop, "--input", orders)
    assert result.status == 1
    assert "KeyError" in result.err
    assert "on the event {'n': 0} (event 1)" in result.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_an_event_that_was_not_finished_is_named_with_where_it_came_from(
    penstock: Penstock, shop: Path, orders: Path
) -> None:
    shop.write_text(PIPELINE.replace("for_each(lambda _: None)", 'write_jsonl("/dev/full")'))
    shop.write_text("from penstock import write_jsonl\n" + shop.read_text())
    result = penstock("turning-point", shop, "--input", orders)
    assert result.status == 1
    assert "  not finished, by load of --input: event 1\n" in result.err


def test_at_a_terminal_it_asks_for_yes(shop: Path, orders: Path, tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "penstock", "turning-point", shop, "--input", orders]
    done = subprocess.run(command, stdin=follower, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "give --yes to confirm" in done.stderr
    assert not (tmp_path / "shop.py.log").exists()
    command += ["--yes", "--seconds", "0.1"]
    done = subprocess.run(command, stdin=follower, capture_output=True, text=True, timeout=30)
    os.close(leader)
    os.close(follower)
    assert done.returncode == 0
