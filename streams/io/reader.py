"""Inputs that are read to their end: files, pipes, sockets and terminals."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from penstock.streams.base.errors import CannotOpen
from penstock.streams.io.compression import Kind, Unpacked
from penstock.streams.io.descriptor import non_blocking
from penstock.streams.io.inputs.patterns import is_url
from penstock.streams.io.paths import Path, actual_input, input_name, opening
from penstock.streams.runtime.context import Run

if TYPE_CHECKING:
    from penstock.streams.io.inputs.objects import Object

__all__ = ["CHUNK", "open_input"]

# Bytes of one read. Chosen: four times what a pipe holds; larger chunks parse no faster.
CHUNK = 256 * 1024


def open_input(
    path: Path,
    run: Run,
    ready: Callable[[], None],
    opened: Callable[[int | Object], Kind | None] | None = None,
) -> Unpacked:
    """Open `path`; `ready` is called when an input that had nothing to read has something.

    What is compressed is decompressed. `opened` is called with the descriptor or the open object,
    before anything is read; it may place it elsewhere than at the start, and returns how it is
    compressed. Raises CannotOpen, what `opened` raises, and what `check_url` does; an object
    that cannot be opened is CannotOpen at its first read.
    """
    kind: Kind | None = None
    path, name = actual_input(path), input_name(path)
    if is_url(path):
        # Imported where it is used: a plain run does not.
        from penstock.streams.io.inputs.objects import Object, UnpackedObject, check_url

        # One that stands for standard input was not known when the pipeline was built.
        check_url(path)
        return UnpackedObject(Object(path, ExitStack(), run, ready), name, CHUNK, opened)
    with opening(path, name, 0, "read") as (descriptor, own):
        if opened is not None:
            kind = opened(descriptor)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise CannotOpen(f"Cannot read {name}: it is a directory. Name a file in it.")
        raw = non_blocking(descriptor, own, run, ready, writing=False)
    return Unpacked(raw, name, CHUNK, from_start=opened is None, kind=kind)
