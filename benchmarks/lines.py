"""Count the lines of the product by folder, in a revision and now.

    python -m benchmarks.lines [REVISION]

For each room of `streams` and for the other folders of the product it prints all lines,
as `wc -l` does, and the lines of code, without docstrings, comments and blank lines. Needs the
repository's history.
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

__all__ = ["folder_of", "lines_of_code"]

HOME = Path(__file__).parents[1]

BASELINE = "9dcba048"

COUNTED = ("streams", "operators", "sources", "sinks", "penstock")

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


def folder_of(path: str) -> str:
    """The folder that the lines of a module count for: its room, for a module of `streams`."""
    first, *rooms = path.split("/")[:-1]
    return f"{first}/{rooms[0]}" if first == "streams" and rooms else first


def _now() -> Iterator[tuple[str, str]]:
    for path in _git("ls-files", "--cached", "--others", "--exclude-standard", "--", *COUNTED):
        if path.endswith(".py") and (HOME / path).exists():
            yield path, (HOME / path).read_text(encoding="utf-8")


def _at(revision: str) -> Iterator[tuple[str, str]]:
    for path in _git("ls-tree", "-r", "--name-only", revision, "--", *COUNTED):
        if path.endswith(".py"):
            yield path, "\n".join([*_git("show", f"{revision}:{path}"), ""])


def _git(*words: str) -> list[str]:
    done = subprocess.run(
        ["git", *words], cwd=HOME, capture_output=True, check=True, encoding="utf-8"
    )
    return done.stdout.split("\n")[:-1]


def _counts(modules: Iterator[tuple[str, str]]) -> tuple[Counter[str], Counter[str]]:
    """All lines, and the lines of code, by folder."""
    lines: Counter[str] = Counter()
    code: Counter[str] = Counter()
    for path, text in modules:
        lines[folder_of(path)] += text.count("\n")
        code[folder_of(path)] += lines_of_code(text)
    return lines, code


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.lines",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("revision", nargs="?", default=BASELINE)
    revision = parser.parse_args().revision
    try:
        lines_then, code_then = _counts(_at(revision))
    except subprocess.CalledProcessError as error:
        print(error.stderr.strip(), file=sys.stderr)
        return 2
    lines, code = _counts(_now())
    print(f"{'':24}{'lines at':>10} {revision[:8]:8}{'now':>10}{'change':>9}", end="")
    print(f"{'code then':>12}{'now':>9}{'change':>9}")
    for name in sorted(lines_then | lines):
        _print(name, lines_then[name], lines[name], code_then[name], code[name])
    _print("sum", lines_then.total(), lines.total(), code_then.total(), code.total())
    return 0


def _print(name: str, then: int, now: int, code_then: int, code: int) -> None:
    print(f"{name:24}{then:19,}{now:10,}{now - then:+9,}", end="")
    print(f"{code_then:12,}{code:9,}{code - code_then:+9,}")


if __name__ == "__main__":
    sys.exit(main())
