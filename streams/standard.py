"""What "-" stands for: standard input and output, unless the command puts a path in their place.

Context variables, because several pipelines may run in one process: whoever starts one sets
them for that running alone, and every task and callback of it inherits them.
"""

from __future__ import annotations

import os
from contextvars import ContextVar

__all__ = ["input_path", "output_path"]

Path = str | os.PathLike[str]

input_path: ContextVar[Path] = ContextVar("penstock input", default="-")
"""The path that `read_jsonl("-")` reads; "-" is standard input itself."""

output_path: ContextVar[Path] = ContextVar("penstock output", default="-")
"""The path that `write_jsonl("-")` writes; "-" is standard output itself."""
