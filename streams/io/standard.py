"""The meaning of the path "-": standard input and output, unless the command replaces them.

Context variables, because several pipelines may run in one process: the code that starts one sets
them for that running alone, and every task and callback of it inherits them.
"""

from __future__ import annotations

import os
from contextvars import ContextVar

__all__ = ["actual_input", "actual_output", "input_path", "output_path"]

Name = str | os.PathLike[str]

input_path: ContextVar[Name] = ContextVar("penstock input", default="-")
"""The path that `read_jsonl("-")` reads; "-" is standard input itself."""

output_path: ContextVar[Name] = ContextVar("penstock output", default="-")
"""The path that `write_jsonl("-")` writes; "-" is standard output itself."""


def actual_input(path: Name | int) -> Name | int:
    """The path or descriptor to read in place of `path`."""
    return input_path.get() if path == "-" else path


def actual_output(path: Name | int) -> Name | int:
    """The path or descriptor to write in place of `path`."""
    return output_path.get() if path == "-" else path
