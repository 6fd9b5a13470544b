"""A run that rotates its output and is killed again and again, at any instant."""

from __future__ import annotations

import csv
import gzip
import io
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from penstock import collect, read_csv, read_jsonl
from penstock.streams.testing import run_virtual

LINES = 60_000
AT_ONCE = 16
KILLS = 50
SIZE = 2_000

PIPELINE = """
import asyncio
import random
import sys

from penstock import Fixed, adaptive_flat_map, read_jsonl, write_csv, write_jsonl

FILE, PLACE, OUTPUT, ROTATE, AT_ONCE = *sys.argv[1:5], int(sys.argv[5])
write = write_csv if ".csv" in OUTPUT else write_jsonl


async def handler(event):
    await asyncio.sleep(random.random() / 500)
    return event


pipeline = (
    read_jsonl(FILE, position=PLACE)
    .pipe(adaptive_flat_map(handler, Fixed(AT_ONCE), window=AT_ONCE))
    .to(write(OUTPUT, rotate=ROTATE))
)
"""


def written(folder: Path) -> set[tuple[int, int]]:
    """The files and their sizes, which change when anything is written."""
    found: set[tuple[int, int]] = set()
    for path in folder.iterdir():
        try:
            status = path.stat()
        except FileNotFoundError:
            # It was renamed meanwhile.
            continue
        found.add((status.st_ino, status.st_size))
    return found


def numbers_in(path: Path) -> Iterator[int]:
    """The numbers of a whole file; raises an error if it is not whole."""
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    assert text.endswith(b"\n"), path
    if ".csv" in path.name:
        header, *rows = csv.reader(io.StringIO(text.decode(), newline=""))
        assert header == ["n", "text"]
    else:
        rows = [list(orjson.loads(line).values()) for line in text.splitlines()]
    for number, filling in rows:
        assert filling == "two\nlines"
        yield int(number)


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv.gz"])
def test_kills_lose_no_line_and_each_file_that_was_ended_is_whole(
    tmp_path: Path, run_seed: int, name: str
) -> None:
    draw = random.Random(run_seed)
    pipeline, file, place, results = (
        tmp_path / part for part in ("job.py", "in.jsonl", "in.position", "results")
    )
    results.mkdir()
    whole = set[Path]()
    pipeline.write_text(PIPELINE)
    file.write_text("".join(f'{{"n":{n},"text":"two\\nlines"}}\n' for n in range(LINES)))
    rotate = draw.choice([f"{SIZE}B", f"{SIZE}B,70ms"])
    command = [
        *(sys.executable, "-m", "penstock", "run", str(pipeline), "--report", "none", "--"),
        *(str(file), str(place), str(results / name), rotate, str(AT_ONCE)),
    ]

    for kill in range(KILLS):
        before = written(results)
        running = subprocess.Popen(command)
        while running.poll() is None and written(results) == before:
            time.sleep(0.005)
        if running.poll() is not None:
            # On a busy machine it may be done before the last kill.
            assert running.returncode == 0
            assert kill > KILLS // 2, (run_seed, kill)
            break
        time.sleep(draw.random() * 0.1)
        running.send_signal(signal.SIGKILL)
        running.wait()
        for path in set(results.glob("out-*")) - whole:
            assert len(list(numbers_in(path))) > 0, (run_seed, kill)
            whole.add(path)

    subprocess.run(command, check=True, timeout=300)
    pattern = str(results / f"out-*{name.removeprefix('out')}")
    again: list[dict[str, str]] = []
    read = read_csv if ".csv" in name else read_jsonl
    run_virtual(read([pattern, str(results / name)]).to(collect(again)).run())  # type: ignore[operator]
    found = Counter(int(one["n"]) for one in again)
    assert set(found) == set(range(LINES)), run_seed
    assert max(path.stat().st_size for path in results.iterdir()) <= SIZE
    assert len(list(results.glob("out-*"))) > KILLS
