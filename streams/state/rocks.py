"""A backend in a folder of RocksDB, for more keys than fit into memory, read at random.

The package `rocksdict` has RocksDB. A commit is one batch of its log: in the file when it returns,
and with `durable` on the disk too. RocksDB locks the folder, so one run at a time may write; others
read what was written when they opened it.

What is stored has keys of bytes: `f` is the format, `s` and a number a stage, `m` and a name the
mark of a partition, `k`, the number of a stage and a key a row, and `d`, the number, a time and a
key says when that row is due.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from heapq import merge
from itertools import islice
from math import inf, isnan, nan
from shutil import rmtree
from struct import Struct
from time import sleep
from typing import Any

from orjson import dumps, loads
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from penstock.streams.base.errors import CannotOpen
from penstock.streams.state.backend import (
    MOST_OVER,
    KeptStage,
    Row,
    Unit,
    other_format,
)

__all__ = ["Rocks", "from_ordered", "ordered"]

_FORMAT = 1

# Bytes of blocks in memory, and bits of the filter for each key, with which one look-up in a
# hundred of a key that is not there reads the disk (the documentation of RocksDB).
_CACHE = 64 * 1024 * 1024
_FILTER_BITS = 10

# The version, the time when it is due or nan, and the length of the timers, which follow; then the
# state.
_HEAD = Struct("<IdI")
_NUMBER = Struct(">I")
_TIME = Struct(">d")
_ORDERED = Struct(">Q")
_SIGN = 1 << 63

# Times that a folder is opened to read, and seconds between them: a run may replace a file of it
# meanwhile.
_ATTEMPTS, _PAUSE = 5, 0.05

# What RocksDB says of a folder that another process has open, or this one (rocksdict 0.3.29; its
# errors have no class).
_LOCKED = re.compile("While lock file|lock hold by current process")

# Entries of a copy that are written at once.
_COPIED = 1_000


class Rocks:
    """States in the folder `path`."""

    in_thread = True
    reads_in_thread = False
    most_rows: int | None = None
    database: tuple[Any, ...] | None = None

    def __init__(self, path: str, *, durable: bool = False) -> None:
        self._path = path
        self._durable = durable
        self._db: Rdict | None = None
        self._ids: dict[str, int] = {}
        # By stage, a time before which no row is due: without it, each search for the first one
        # would pass over the index entries that were just deleted. It is inf if no row ever was.
        self._earliest: dict[str, float] = {}

    def open(self) -> None:
        with self._named("open"):
            # RocksDB would make the folders above too, also where one is misspelt.
            with suppress(FileExistsError):
                os.mkdir(self._path)
            try:
                db = self._db = Rdict(self._path, _options())
            except Exception as error:
                if not _LOCKED.search(str(error)):
                    raise
                raise CannotOpen(
                    f"{self._path} is locked: another run uses the store. Wait until it has ended, "
                    "or use another store."
                ) from error
            if b"f" not in db:
                if any(True for _ in db.items()):
                    raise CannotOpen(f"{self._path} is not a store: it is another database.")
                db.put(b"f", b"%d" % _FORMAT)
            self._check_format(db)
            self._read_stages()

    def open_to_read(self) -> None:
        """Open the folder for reading, also during a run: what is read is what was committed until
        now. Raises CannotOpen if it is not a store."""
        if not os.path.isfile(os.path.join(self._path, "CURRENT")):
            why = (
                "it is not a folder of RocksDB"
                if os.path.exists(self._path)
                else "no run has made it yet"
            )
            raise CannotOpen(f"There is no store at {self._path}: {why}.")
        with self._named("read"):
            db = self._db = self._opened_to_read()
            if b"f" not in db:
                raise CannotOpen(
                    f"{self._path} is not a store yet: no run has begun to use it, or it is "
                    "another database."
                )
            self._check_format(db)
            self._read_stages()

    def _opened_to_read(self) -> Rdict:
        for left in reversed(range(_ATTEMPTS)):
            try:
                return Rdict(self._path, _options(), access_type=AccessType.read_only(False))
            except Exception:
                if not left:
                    raise
                sleep(_PAUSE)
        raise AssertionError

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def stages(self) -> list[KeptStage]:
        return [stage for _, stage in self._stages()]

    def _stages(self) -> list[tuple[int, KeptStage]]:
        return [
            (_NUMBER.unpack_from(key, 1)[0], KeptStage(*loads(value)))
            for key, value in self._items(b"s")
        ]

    def declare(self, stages: Iterable[KeptStage]) -> None:
        batch = WriteBatch(raw_mode=True)
        numbers = dict(self._ids)
        for stage in stages:
            number = numbers.setdefault(stage.name, max(numbers.values(), default=0) + 1)
            batch.put(_key(b"s", number), dumps(tuple(stage)))
        self._write(batch)
        self._read_stages()

    def forget(self, stage: str) -> None:
        batch, number = WriteBatch(raw_mode=True), self._ids[stage]
        batch.delete(_key(b"s", number))
        for kind in (b"k", b"d"):
            batch.delete_range(_key(kind, number), _key(kind, number + 1))
        self._write(batch)
        self._read_stages()

    def read(self, stage: str, keys: Sequence[bytes]) -> list[Row]:
        prefix = _key(b"k", self._ids[stage])
        with self._named("read"):
            # All as of one commit, as `MultiGet` of RocksDB promises. Any: what a list gives.
            values: Any = self._opened.get([prefix + key for key in keys])
        return [
            _row(key, value) for key, value in zip(keys, values, strict=True) if value is not None
        ]

    def due(self, stage: str, after: float, until: float, most: int) -> list[tuple[float, bytes]]:
        return list(islice(self._due(stage, after, until), most))

    def _due(self, stage: str, after: float, until: float) -> Iterator[tuple[float, bytes]]:
        """When rows are due, and their keys, in order."""
        prefix = _key(b"d", self._ids[stage])
        after = max(after, self._earliest[stage])
        if after >= until:
            return
        for key, _ in self._items(prefix, prefix + ordered(after), prefix + ordered(until)):
            yield from_ordered(key[5:13]), key[13:]

    def mark(self, partition: str) -> bytes | None:
        with self._named("read"):
            mark: bytes | None = self._opened.get(b"m" + partition.encode())
        return mark

    def marks(self) -> list[tuple[str, bytes]]:
        return [(key[1:].decode(), mark) for key, mark in self._items(b"m")]

    def commit(self, unit: Unit) -> None:
        if unit.parts:
            raise CannotOpen(
                f"The store {self._path} is not an SQL database: rows of tables cannot be in it."
            )
        batch = WriteBatch(raw_mode=True)
        new = self._add_rows(batch, unit)
        for stage, dues in new.items():
            self._index(batch, stage, dues)
        earliest = {
            stage: self._delete_over(batch, stage, until, new.get(stage, {}))
            for stage, until in unit.over.items()
        }
        for partition, mark in unit.marks.items():
            batch.put(b"m" + partition.encode(), mark)
        self._write(batch, durable=unit.durable)
        self._earliest.update(earliest)

    def _add_rows(self, batch: WriteBatch, unit: Unit) -> dict[str, dict[bytes, float | None]]:
        """Add the rows of a unit, and its deletions; returns by stage and key when each is due,
        None if it is deleted."""
        new: dict[str, dict[bytes, float | None]] = {}
        for stage, rows in unit.rows.items():
            prefix = _key(b"k", self._ids[stage])
            for key, state, version, timers, due in rows:
                head = _HEAD.pack(version, nan if due is None else due, len(timers))
                batch.put(prefix + key, head + timers + state)
            new[stage] = {row[0]: row[4] for row in rows}
        for stage, gone in unit.gone.items():
            prefix = _key(b"k", self._ids[stage])
            for key in gone:
                batch.delete(prefix + key)
            new.setdefault(stage, {}).update(dict.fromkeys(gone))
        return new

    def _index(self, batch: WriteBatch, stage: str, new: dict[bytes, float | None]) -> None:
        """Add when these rows are due, in place of when they were."""
        prefix = _key(b"d", self._ids[stage])
        if self._earliest[stage] < inf:
            for key, _, _, _, due in self.read(stage, list(new)):
                if due is not None:
                    batch.delete(prefix + ordered(due) + key)
        for key, due in new.items():
            if due is not None:
                batch.put(prefix + ordered(due) + key, b"")
                # Before it is written: what reads meanwhile must not begin behind it.
                self._earliest[stage] = min(due, self._earliest[stage])

    def _delete_over(
        self, batch: WriteBatch, stage: str, until: float, new: dict[bytes, float | None]
    ) -> float:
        """Add the deletion of the oldest rows that are over; returns a time before which no row is
        due then."""
        rows, index = _key(b"k", self._ids[stage]), _key(b"d", self._ids[stage])
        old = (one for one in self._due(stage, -inf, until) if one[1] not in new)
        added = sorted((due, key) for key, due in new.items() if due is not None and due < until)
        found = list(islice(merge(old, added), MOST_OVER))
        for due, key in found:
            batch.delete(rows + key)
            batch.delete(index + ordered(due) + key)
        return found[-1][0] if len(found) == MOST_OVER else max(until, self._earliest[stage])

    def scan(self, stage: str) -> Iterator[Row]:
        for key, value in self._items(_key(b"k", self._ids[stage])):
            yield _row(key[5:], value)

    def size(self, stage: str) -> tuple[int, int]:
        keys = size = 0
        for row in self.scan(stage):
            keys += 1
            size += len(row.key) + len(row.state)
        return keys, size

    def backup(self, path: str) -> None:
        """Write a copy of the current state to a new folder. Raises CannotOpen."""
        if os.path.exists(path):
            raise CannotOpen(f"Cannot copy the store {self._path} to {path}: it exists.")
        # Renamed when it is whole.
        part = f"{path}.part"
        with self._named("copy", f" to {path}"):
            rmtree(part, ignore_errors=True)
            os.mkdir(part)
            with Rdict(part, _options()) as copy:
                items = self._items(b"a", end=b"z")
                while some := list(islice(items, _COPIED)):
                    batch = WriteBatch(raw_mode=True)
                    for key, value in some:
                        batch.put(key, value)
                    copy.write(batch)
            os.rename(part, path)

    # The folder.

    @property
    def _opened(self) -> Rdict:
        assert self._db is not None
        return self._db

    @contextmanager
    def _named(self, what: str, to: str = "") -> Generator[None]:
        try:
            yield
        except CannotOpen:
            raise
        except Exception as error:
            # The package has no class of errors.
            raise CannotOpen(f"Cannot {what} the store {self._path}{to}: {error}.") from error

    def _check_format(self, db: Rdict) -> None:
        # Any: folders of others have values of any type.
        found: Any = db.get(b"f")
        if found != b"%d" % _FORMAT:
            raise other_format(self._path, found.decode(), _FORMAT)

    def _items(
        self, prefix: bytes, first: bytes = b"", end: bytes = b""
    ) -> Iterator[tuple[bytes, bytes]]:
        """What is stored with this prefix, in order of the keys, from a first key on and up to an
        end: all as of one commit."""
        options = ReadOptions()
        options.set_iterate_upper_bound(end or _behind(prefix))
        with self._named("read"):
            # Any: the keys and values of folders that hold other types than bytes.
            items: Any = self._opened.items(from_key=first or prefix, read_opt=options)
            yield from items

    def _write(self, batch: WriteBatch, *, durable: bool = False) -> None:
        options = WriteOptions()
        options.sync = durable or self._durable
        with self._named("write"):
            self._opened.write(batch, options)

    def _read_stages(self) -> None:
        self._ids = {stage.name: number for number, stage in self._stages()}
        self._earliest = dict.fromkeys(self._ids, -inf)
        for stage in self._ids:
            first = next(self._due(stage, -inf, inf), None)
            self._earliest[stage] = inf if first is None else first[0]


def _options() -> Options:
    blocks = BlockBasedOptions()
    blocks.set_block_cache(Cache(_CACHE))
    blocks.set_bloom_filter(_FILTER_BITS, block_based=False)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    # Of the log that RocksDB writes about itself.
    options.set_keep_log_file_num(2)
    return options


def _key(kind: bytes, number: int) -> bytes:
    return kind + _NUMBER.pack(number)


def _behind(prefix: bytes) -> bytes:
    """The first key behind all with this prefix, which begins with a letter."""
    whole = prefix.rstrip(b"\xff")
    return whole[:-1] + bytes([whole[-1] + 1])


def _row(key: bytes, value: bytes) -> Row:
    version, due, length = _HEAD.unpack_from(value)
    at = _HEAD.size + length
    return Row(key, value[at:], version, value[_HEAD.size : at], None if isnan(due) else due)


def ordered(seconds: float) -> bytes:
    """A time as bytes that are in the order of times."""
    # -0.0 is 0.0 then.
    (bits,) = _ORDERED.unpack(_TIME.pack(seconds + 0.0))
    return _ORDERED.pack(bits ^ (2 * _SIGN - 1) if bits & _SIGN else bits | _SIGN)


def from_ordered(content: bytes) -> float:
    (bits,) = _ORDERED.unpack(content)
    seconds: float
    (seconds,) = _TIME.unpack(
        _ORDERED.pack(bits ^ _SIGN if bits & _SIGN else bits ^ (2 * _SIGN - 1))
    )
    return seconds
