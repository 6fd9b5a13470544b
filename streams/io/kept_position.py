"""Where the position in a file is kept: in a small file of its own, or in a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from orjson import JSONDecodeError, loads

from penstock.streams.base.errors import CannotOpen
from penstock.streams.delivery.commit import Commit
from penstock.streams.delivery.marks import Marks, Participant
from penstock.streams.delivery.text import Unusable, body_in
from penstock.streams.io.file_lock import locked
from penstock.streams.io.inputs.patterns import path_of
from penstock.streams.protocol.event import Event, Origin
from penstock.streams.runtime.context import Run

__all__ = ["ABOUT", "InFile", "InStore", "position_in", "saved_in", "written"]

ABOUT = ("position",)
"""What the text is, to `streams.delivery.text`. The file it is about is in its body: one that was
renamed or copied since is still the same."""

# What SQLite has beside a file.
_BESIDE_STORE = ("", "-wal", "-shm", "-journal", ".lock")


class InFile:
    """A position in a file of its own, which is written in the loop iteration after it changed."""

    def __init__(self, path: str, run: Run, content: Callable[[], bytes]) -> None:
        self.name = path
        own = os.path.abspath(path)
        self.files = [f"{own}{suffix}" for suffix in ("", ".new", ".lock")]
        self._path = path
        self._content = content
        self._run = run
        self._is_locked = False
        self._lock: int | None = None
        self._commit = Commit(
            "position", self._write_changed, partial(run.call_soon, run.attaching), run.failed
        )
        self.changed = self._commit.due
        run.on_close(self._close)

    @property
    def is_new(self) -> bool:
        return not os.path.exists(self._path)

    def load(self, name: str) -> dict[str, Any] | None:
        """The position that the last process saved, None if there was none. Raises CannotOpen."""
        if not self._is_locked:
            self._lock = locked(
                f"{self._path}.lock",
                "another run keeps its position there. Wait until it has ended, or give this one a "
                "different position. A pipeline that reads one source twice reads it once with "
                "share().",
            )
            self._is_locked = True
        return saved_in(self._path)

    def again(self, name: str) -> str:
        """What to do to read the input from its start."""
        return f"To read {name} from its start, remove {self._path}."

    def begin(self) -> None:
        """Write the first position in a file. Raises CannotOpen."""
        try:
            self._write()
        except OSError as error:
            raise CannotOpen(f"Cannot write {self._path}: {error.strerror}.") from error

    def _write_changed(self) -> None:
        try:
            self._write()
        except OSError as error:
            error.filename = self._path
            raise

    def _write(self) -> None:
        new = f"{self._path}.new"
        with open(new, "wb") as file:
            file.write(self._content() + b"\n")
        os.replace(new, self._path)

    async def _close(self) -> None:
        await self._commit.flush()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class InStore(Participant):
    """A position in a store, which writes it together with what its lines have done.

    `content` is the position as it is when these events are done too, and `finish` notes that they
    are.
    """

    is_new = False

    def __init__(
        self,
        marks: Marks,
        run: Run,
        origin: Origin,
        content: Callable[[Sequence[Event[Any]]], bytes],
        finish: Callable[[Sequence[Event[Any]]], None],
    ) -> None:
        self.name = marks.name
        self.files = [f"{os.path.abspath(marks.name)}{suffix}" for suffix in _BESIDE_STORE]
        self._partition = ""
        # The last marks of files that were read before the present one, until they are written, and
        # those of which that was begun.
        self._left: dict[str, bytes] = {}
        self._begun: dict[str, bytes] = {}
        self._marks = marks.marks_in(run)
        self._origin = origin
        self._content = content
        self._finish = finish
        self.changed: Callable[[], None] = _nothing

    def marks(self, events: Sequence[Event[Any]]) -> Iterator[tuple[str, bytes]]:
        self._begun = dict(self._left)
        yield from self._begun.items()
        yield self._partition, self._content(events)

    def written(self) -> None:
        for partition in self._begun:
            self._left.pop(partition, None)

    def finish(self, events: Sequence[Event[Any]]) -> None:
        self._finish(events)

    def load(self, name: str) -> dict[str, Any] | None:
        """The position in the file of this name, which is read after another one that is finished;
        None if there is none. Raises CannotOpen."""
        if self._partition:
            self._left[self._partition] = self._content(())
        self._partition = f"file {written(path_of(name))}"
        content = self._marks.mark(self._partition)
        return None if content is None else _read(content, self.name, self.again(name))

    def again(self, name: str) -> str:
        """What to do to read the input from its start."""
        return f"To read {name} from its start, give a new store."

    def begin(self) -> None:
        """Keep the first position in a file."""
        self.changed = self._marks.keep(self._origin, self)


def _nothing() -> None: ...


def written(path: str) -> str:
    """A path as it is written: any bytes may be in its name."""
    return path.encode("utf-8", "backslashreplace").decode()


def saved_in(path: str) -> dict[str, Any] | None:
    """The position that the last process saved, None if there was none."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CannotOpen(f"Cannot read {path}: {error.strerror}.") from error
    advice = f"Put a whole copy of it there; or, to read the input from its start, remove {path}."
    return _read(content, path, advice)


def _read(content: bytes, name: str, advice: str) -> dict[str, Any]:
    """The position that was written as this. Raises CannotOpen."""
    found = position_in(content)
    if isinstance(found, Unusable):
        raise CannotOpen(f"Cannot go on from {name}: {found}. {advice}")
    return found


def position_in(content: bytes) -> dict[str, Any] | Unusable:
    """The position that was written as this, or the reason why it cannot be used."""
    text = content.decode(errors="surrogateescape").removesuffix("\n")
    # Without a version: as positions were before there was one.
    body = text if text.startswith("{") else body_in(text, ABOUT)
    if isinstance(body, str):
        return _position_in(body) or Unusable("damaged", "it is not a position")
    return body


def _position_in(body: str) -> dict[str, Any] | None:
    try:
        # Any: whatever the file holds.
        saved: Any = loads(body)
        numbers: list[Any] = [saved[name] for name in ("inode", "size", "offset", "checksum")]
        # Once the checksum was of the bytes before the offset.
        numbers.append(saved.setdefault("read", saved["offset"]))
        numbers.append(saved["line"])
        numbers += saved.setdefault("unended", [])
        for first, end in saved["finished"]:
            numbers += [first, end]
        saved.setdefault("path", "")
        # Only one of an object has a version.
        saved.setdefault("version", "")
        # One of before there were any begins with this run.
        saved.setdefault("generation", os.urandom(8).hex())
    except (JSONDecodeError, LookupError, TypeError, ValueError, AttributeError):
        return None
    good = all(type(number) is int and number >= 0 for number in numbers)
    texts = {type(saved[name]) for name in ("path", "generation", "version")} == {str}
    return saved if good and texts and len(saved["unended"]) in (0, 3) else None
