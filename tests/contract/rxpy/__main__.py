"""Runs RxPY's own tests of its operators through streams with demand: `make test-rx`.

    make test-rx RXPY=RxPY    # a checkout of ReactiveX/RxPY

Each test runs twice on the installed reactivex: as it is, and with every `pipe` that it writes put
on a `Flowable`, whose loop is the test's own scheduler. Judged are its assertions, and whether its
observers received the same, at the same virtual times, from sources that were subscribed to and
disposed of at the same times. Nothing of RxPY's tests is kept here.

This says that operators keep their meaning, and nothing about demand: a stream without bounds
would do as well. Demand is what `tests/contract/reactive_streams` is about.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.contract.rxpy.expected import DIFFERENT, FEWEST_SAME
from tests.contract.rxpy.judge import DIFFER, OTHER, SAME, Judged, judge, table

# RxPY's tests are a package `tests` too: what runs beside them is imported from this folder.
HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="make test-rx", description=__doc__.splitlines()[0])
    parser.add_argument("rxpy", type=Path, help="a checkout of RxPY")
    parser.add_argument("--one", action="store_true", help="request one value at a time")
    parser.add_argument("--only", default="tests/test_observable", help="a folder or file of it")
    parser.add_argument("--show", action="store_true", help="print why tests are not the same")
    options = parser.parse_args()
    if not (options.rxpy / options.only).exists():
        parser.error(f"{options.rxpy / options.only} is not there: give a checkout of RxPY")
    stock = records(options.rxpy, options.only, "", one=False)
    ours = records(options.rxpy, options.only, "adapter", one=options.one)
    judged = judge(stock, ours)
    print(*table(judged), sep="\n")
    print(f"{len(judged)} tests, reactivex {version('reactivex')}")
    if options.show:
        for one in judged:
            if one.kind != SAME:
                print(f"{_name(one)}: {one.kind}: {one.why}")
    return verdict(judged, is_all=options.only == parser.get_default("only"))


def verdict(judged: list[Judged], *, is_all: bool) -> int:
    """Print what is not as `expected` says; the exit status."""
    faults = [
        f"{_name(one)} is {one.kind!r}, and expected.py does not list it: {one.why}"
        for one in judged
        if one.kind in (DIFFER, OTHER) and _name(one) not in DIFFERENT
    ]
    same = Counter(one.kind for one in judged)[SAME]
    if is_all:
        ended = {_name(one) for one in judged if one.kind == SAME}
        faults += [f"{name} is the same now: take it off the list" for name in ended & {*DIFFERENT}]
        if same < FEWEST_SAME:
            faults.append(f"{same} are the same, fewer than {FEWEST_SAME}")
    print(*faults, sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


def _name(one: Judged) -> str:
    return one.test.rsplit("/", 1)[-1]


def records(rxpy: Path, what: str, adapter: str, *, one: bool) -> dict[str, Any]:
    """Run the tests, and return the records by test."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "records.json")
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(HERE), str(rxpy.resolve())]),
            # Records show sets, whose order would differ from run to run.
            "PYTHONHASHSEED": "0",
            "RXPY_THROUGH": adapter,
            "RXPY_RECORDS": str(file),
            "RXPY_DEMAND": "one" if one else "unbounded",
        }
        pytest = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"]
        run = subprocess.run(
            [*pytest, "-p", "recording", "--rootdir", ".", "-c", os.devnull, what],
            cwd=rxpy,
            env=environment,
            capture_output=True,
            text=True,
        )
        if not file.exists():
            sys.exit(f"the tests did not run:\n{run.stdout[-3000:]}{run.stderr[-3000:]}")
        result: dict[str, Any] = json.loads(file.read_text("utf-8"))
        return result


if __name__ == "__main__":
    sys.exit(main())
