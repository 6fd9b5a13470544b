"""Count the lines of code of the core, in a revision and now.

    python -m benchmarks.lines [REVISION]

It counts the lines of code, without docstrings, comments and blank lines, of `streams` (without
what is built on it: temporal logic, the queue in a database, NATS, work pulling, the helpers for
tests), `streams/limits` by itself, and `operators`. The default revision is the one before the core
was redesigned. Needs the repository's history.

What has no counterpart there is not counted either, because it is a feature of its own and no part
of the way of an event in one process: `streams/workers` (the handler in worker processes),
`streams/telemetry` (the live page and what it records), `operators/rx` and its bases in
`streams/rx` (operators over several streams, windows read later, types of the fluent methods),
`streams/picture.py` (the picture of a pipeline, in `penstock` then), the numbers of stages over
several streams, the items of async iterables in `spread` and `flat_map`, and how far apart the
events of a group leave. What NATS and Kafka share in `streams/io` is left out as they are. What was
added inside files of the core since, as `cost=` of a rate limit, is counted.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

__all__ = ["folders", "lines_of_code"]

HOME = Path(__file__).parents[1]

BASELINE = "b437a2323cb2c219d0969d98f4f6d716b2d24217"

COUNTED = ("streams", "operators")

# By their names then and now.
BUILT_ON_IT = {
    *("temporal", "testing"),
    *("table", "sql_queue"),
    *("jetstream", "nats", "kafka"),
    *("work", "work_pulling"),
}

# They did not exist in the default revision, or not in these packages.
NEW = {
    *("streams/workers", "streams/telemetry", "streams/picture.py", "operators/rx"),
    *(
        f"streams/rx/combining/{base}.py"
        for base in (
            *("__init__", "inputs", "several", "sharing", "succession", "switching"),
            *("nested", "signalled"),
        )
    ),
    *("streams/rx/chained.py", "streams/rx/windows.py"),
    *("streams/protocol/numbering.py", "streams/boundary/async_items.py"),
}

# Of NATS and Kafka, in a folder of the core.
SHARED = {"streams/io/confirmed_sink.py", "streams/io/letter.py"}

_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def lines_of_code(text: str) -> int:
    """The lines of a module that hold code, without docstrings, those of attributes included."""
    strings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(ast.Constant(str())):
                strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            case _:
                pass
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - strings)


def folders(modules: Iterator[tuple[str, str]]) -> Counter[str]:
    """Lines by folder, of those (path, text) that count."""
    counts: Counter[str] = Counter()
    for path, text in modules:
        first, *rest = path.split("/")
        if not rest or first not in COUNTED or rest[0] in BUILT_ON_IT:
            continue
        if path in NEW | SHARED or f"{first}/{rest[0]}" in NEW:
            continue
        counts["streams/limits" if rest[0] == "limits" else first] += lines_of_code(text)
    return counts


def _now() -> Iterator[tuple[str, str]]:
    for name in COUNTED:
        for path in sorted((HOME / name).rglob("*.py")):
            yield path.relative_to(HOME).as_posix(), path.read_text(encoding="utf-8")


def _at(revision: str) -> Iterator[tuple[str, str]]:
    for path in _git("ls-tree", "-r", "--name-only", revision, "--", *COUNTED).splitlines():
        if path.endswith(".py"):
            yield path, _git("show", f"{revision}:{path}")


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=HOME, capture_output=True, check=True, encoding="utf-8"
    )
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.lines",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("revision", nargs="?", default=BASELINE)
    revision = parser.parse_args().revision
    try:
        then = folders(_at(revision))
    except subprocess.CalledProcessError as error:
        print(error.stderr.strip(), file=sys.stderr)
        return 2
    now = folders(_now())
    print(f"{'lines of code':16}{revision[:7]:>14}{'now':>10}{'change':>10}")
    for name in sorted(then | now):
        print(_row(name, then[name], now[name]))
    print(_row("sum", then.total(), now.total()))
    return 0


def _row(name: str, then: int, now: int) -> str:
    return f"{name:16}{then:14,}{now:10,}{now / then - 1 if then else 0.0:+10.1%}"


if __name__ == "__main__":
    sys.exit(main())
