"""Loads a pipeline that is not in a file: the text of `penstock run -c`, or of standard input."""

from __future__ import annotations

import ast
import linecache
import sys
from importlib.machinery import SourceFileLoader

from penstock.command.pipelines.load import choose, execute
from penstock.command.pipelines.options import Options
from penstock.streams.base.errors import BuildError
from penstock.streams.pipelines.flowable import Flowable
from penstock.streams.pipelines.pipeline import Pipeline

__all__ = ["from_text"]


class _Text(SourceFileLoader):
    """The loader of a module whose source is a text."""

    def __init__(self, where: str, text: str) -> None:
        super().__init__("penstock_pipeline_text", where)
        self._text = text

    def get_data(self, path: str) -> bytes:
        return self._text.encode()

    def path_stats(self, path: str) -> dict[str, float]:
        # So that no compiled form of it is looked for, or kept.
        raise OSError


def from_text(options: Options) -> Pipeline:
    """The pipeline of the text, in which all names of penstock are known; a stream alone is written
    to standard output as JSON lines. Raises BuildError."""
    import penstock

    where = "-" if options.code is None else "-c"
    text = _read() if options.code is None else options.code
    is_value = True
    try:
        tree: ast.AST = ast.parse(text, where, "eval")
        # In brackets it may have several lines.
        text = f"pipeline = ({text}\n)"
    except SyntaxError:
        is_value = False
        try:
            tree = ast.parse(text, where)
        except SyntaxError:
            # Reported when it is loaded.
            tree = ast.Module([], [])
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names = {name: getattr(penstock, name) for name in penstock.__all__ if name in used}
    # For tracebacks; another text may have had the name.
    linecache.cache[where] = len(text), None, text.splitlines(keepends=True), where
    sys.argv = [where, *options.arguments]
    module = execute(_Text(where, text), where, "pipeline", options.traceback, names)
    found = getattr(module, "pipeline", None)
    if isinstance(found, Flowable):
        # Any: of whatever it is a stream.
        return found.to(penstock.write_jsonl())  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if is_value and not (isinstance(found, Pipeline) or callable(found)):
        raise BuildError(
            f"{where} is of type {type(found).__name__}, and a stream or a pipeline is needed, as "
            "in 'read_jsonl().pipe(distinct_within(10, by=\"id\"))'"
        )
    return choose(module, where, None)


def _read() -> str:
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise BuildError("run - reads the pipeline from standard input, which is closed")
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except (UnicodeDecodeError, OSError) as error:
        raise BuildError(f"Cannot read the pipeline from standard input: {error}") from error
