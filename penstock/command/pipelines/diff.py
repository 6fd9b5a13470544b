"""`penstock diff`: what is different between two pipelines, in words."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from tempfile import TemporaryDirectory
from typing import Any

from penstock.command.output import put
from penstock.streams.base.errors import BadDefinition, BuildError
from penstock.streams.definitions.difference import differences
from penstock.streams.definitions.files import form_of, parsed
from penstock.streams.definitions.names import is_a

__all__ = ["call"]

_DIFFERENT = 1


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Run the sub-command; returns 0 if both are made of the same, else 1, as `diff` does."""
    old, new = (_definition(where, for_the_file) for where in (options.old, options.new))
    lines = differences(old, new)
    return put("".join(f"{line}\n" for line in lines)) or (_DIFFERENT if lines else 0)


def _definition(where: str, arguments: list[str]) -> dict[str, Any]:
    """The definition of the pipeline in a file.

    It is made by a process of its own: two files may have modules of one name beside them.
    """
    if form_of(where) == "json":
        found = parsed(where)
        if not is_a(found, dict):
            raise BadDefinition(f"{where}: a definition is a JSON object")
        if lacks := [part for part in ("source", "sinks") if not found.get(part)]:
            raise BadDefinition(
                f"{where}: this is not the definition of a pipeline: it has no {lacks[0]}"
            )
        definition: dict[str, Any] = found
        return definition
    with TemporaryDirectory() as folder:
        path = os.path.join(folder, "definition.json")
        command = [sys.executable, "-m", "penstock", "draw", where]
        done = subprocess.run(
            [*command, "--format", "json", "--output", path, "--", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BuildError(done.stderr.removeprefix("penstock: ").rstrip("\n"))
        sys.stderr.write(done.stderr)
        definition = parsed(path)
        return definition
