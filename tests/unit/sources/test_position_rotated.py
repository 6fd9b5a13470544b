"""A file that was rotated while no run read it: the next run finds it, and what came after it."""

from __future__ import annotations

import asyncio
import gzip
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Fixed, adaptive_flat_map, collect, read_lines
from penstock.streams.base import clock
from penstock.streams.base.errors import CannotOpen
from penstock.streams.testing.plugin import Run

# A time of the last change long ago; each file that is made later has a later one.
LONG_AGO = 1_700_000_000


class Log:
    """A log that is rotated; its lines are numbered."""

    def __init__(self, folder: Path, *, base: str = "app.log") -> None:
        self.file = folder / base
        self.place = folder / f"{base}.position"
        self.written = self.now = 0

    def write(self, count: int, *, to: Path | None = None) -> None:
        path = self.file if to is None else to
        with path.open("a") as opened:
            for _ in range(count):
                opened.write(f"line {self.written}\n")
                self.written += 1
        self.touch(path)

    def touch(self, path: Path) -> None:
        self.now += 1
        os.utime(path, (LONG_AGO + self.now, LONG_AGO + self.now))

    def number(self) -> None:
        """Rotate as logrotate and Python's RotatingFileHandler do; the newest has number 1."""
        old = self.file.parent.glob(f"{self.file.name}.*")
        numbers = (int(path.suffix[1:]) for path in old if path.suffix[1:].isdigit())
        for number in sorted(numbers, reverse=True):
            name = f"{self.file}.{number}"
            os.rename(name, f"{self.file}.{number + 1}")
        os.rename(self.file, f"{self.file}.1")

    def date(self, template: str = "app.log-2026{:04}") -> None:
        name = template.format(self.now)
        os.rename(self.file, self.file.with_name(name))

    async def read(self, seconds: float = 30, *, follow: bool = True) -> list[str]:
        found: list[str] = []
        source = read_lines(self.file, follow=follow, position=self.place)
        running = source.to(collect(found)).start()
        waiting = asyncio.ensure_future(running.wait())
        await asyncio.wait([waiting], timeout=seconds)
        if not waiting.done():
            running.cancel()
        await waiting
        return found

    def lines(self, start: int) -> list[str]:
        return [f"line {number}" for number in range(start, self.written)]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


RENAMINGS: dict[str, Callable[[Log], None]] = {
    "numbers": Log.number,
    "dates": Log.date,
    "dates before the suffix": lambda log: log.date("app-2026-11-{:02}.log"),
    "names without digits": lambda log: os.replace(log.file, f"{log.file}.old"),
    "names of another kind": lambda log: log.date("archive {:02}"),
    "labels of TAI64N": lambda log: log.date("@40000000{:02}bc0fe7.s"),
    "numbers that count up": lambda log: log.date("app.log.{}"),
}


FOLLOWED = pytest.mark.parametrize("follow", [True, False], ids=["followed", "read to the end"])


@FOLLOWED
@pytest.mark.parametrize("rename", RENAMINGS.values(), ids=RENAMINGS)
def test_a_file_that_was_rotated_is_found_read_to_its_end_and_followed_by_its_successor(
    run: Run,
    log: Log,
    rename: Callable[[Log], None],
    follow: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    log.write(3)
    assert run(log.read(follow=follow)) == log.lines(0)
    log.write(2)
    rename(log)
    log.write(2)
    assert run(log.read(follow=follow)) == log.lines(3)
    assert "was rotated while no run read it: going on at byte 21 of " in caplog.text
    assert run(log.read(follow=follow)) == []


@pytest.mark.parametrize(
    "rename",
    [rename for name, rename in RENAMINGS.items() if "without" not in name],
    ids=[name for name in RENAMINGS if "without" not in name],
)
def test_all_files_that_had_the_name_between_two_runs_are_read_in_their_order(
    run: Run, log: Log, rename: Callable[[Log], None]
) -> None:
    for _ in range(3):
        log.write(1)
        rename(log)
    log.write(1)
    run(log.read())
    start = log.written
    for _ in range(12):
        log.write(2)
        rename(log)
    log.write(1)
    assert run(log.read(100)) == log.lines(start)


def test_the_numbers_of_lines_are_those_of_each_file(run: Run, log: Log) -> None:
    log.write(2)
    run(log.read())
    log.write(1)
    log.number()
    log.write(1)
    with log.file.open("ab") as more:
        more.write(b"\xff\n")
    seen: list[str] = []

    async def story() -> None:
        running = read_lines(log.file, follow=True, position=log.place, on_bad_line="stop").to(
            collect(seen)
        )
        with pytest.raises(Exception, match=r"app\.log, line 2 "):
            await running.run()

    run(story())
    assert seen == log.lines(2)


@FOLLOWED
def test_a_file_that_was_moved_away_is_read_while_nothing_has_its_name(
    run: Run, log: Log, follow: bool
) -> None:
    log.write(2)
    run(log.read())
    log.write(1)
    log.number()
    assert run(log.read(follow=follow)) == log.lines(2)
    log.write(1, to=log.file.with_name("app.log.1"))
    assert run(log.read(follow=follow)) == log.lines(3)
    log.write(1)
    assert run(log.read(follow=follow)) == log.lines(4)


def test_what_a_writer_still_writes_into_the_file_that_was_rotated_is_read(
    run: Run, log: Log
) -> None:
    log.write(2)
    run(log.read())
    log.number()
    log.file.touch()

    async def story() -> list[str]:
        reading = asyncio.ensure_future(log.read())
        await asyncio.sleep(4)
        log.write(1, to=log.file.with_name("app.log.1"))
        log.write(1)
        return await reading

    assert run(story()) == log.lines(2)


def test_only_the_last_file_that_was_rotated_is_waited_for_if_the_others_are_old(
    run: Run, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write(2)
    run(log.read())
    for _ in range(12):
        log.number()
        log.write(1)
    log.number()
    log.file.touch()
    # Their writer may be idle, and not know yet that the last one was renamed.
    now = clock.wall()
    monkeypatch.setattr(clock, "wall", lambda: now + 1000)

    async def story() -> list[str]:
        reading = asyncio.ensure_future(log.read(7))
        await asyncio.sleep(4)
        log.write(1, to=log.file.with_name("app.log.1"))
        log.write(1)
        await asyncio.sleep(2)
        return await reading

    assert run(story()) == log.lines(2)[:-1]
    assert run(log.read()) == log.lines(log.written - 1)


@pytest.mark.parametrize("rename", [Log.number, Log.date])
def test_files_that_were_changed_at_the_same_time_are_read_in_the_order_of_their_names(
    run: Run, log: Log, rename: Callable[[Log], None]
) -> None:
    log.write(2)
    run(log.read())
    for _ in range(11):
        log.write(1)
        rename(log)
    log.write(1)
    for path in log.file.parent.iterdir():
        os.utime(path, (LONG_AGO, LONG_AGO))
    assert run(log.read(100)) == log.lines(2)


def test_empty_files_between_the_versions_do_not_matter(run: Run, log: Log) -> None:
    log.write(1)
    run(log.read())
    log.number()
    log.file.touch()
    log.touch(log.file)
    # Its writer has not opened the new one yet.
    log.write(1, to=log.file.with_name("app.log.1"))
    log.number()
    log.write(1)
    assert run(log.read()) == log.lines(1)


def test_the_copy_of_a_file_that_was_emptied_is_found(run: Run, log: Log) -> None:
    log.write(2)
    run(log.read())
    for _ in range(2):
        log.write(1)
        for number in (2, 1):
            old = Path(f"{log.file}.{number}")
            if old.exists():
                old.rename(f"{log.file}.{number + 1}")
        shutil.copy2(log.file, f"{log.file}.1")
        os.truncate(log.file, 0)
    log.write(1)
    assert run(log.read()) == log.lines(2)


@pytest.mark.parametrize("noticed", [True, False], ids=["noticed", "not noticed"])
@pytest.mark.parametrize("done", [0, 3], ids=["nothing finished", "some finished"])
def test_the_copy_is_found_of_a_file_that_was_emptied_while_its_lines_were_in_work(
    run: Run, log: Log, done: int, noticed: bool
) -> None:
    log.write(0)
    found: list[str] = []

    async def handler(line: str) -> str:
        if len(found) >= done:
            await asyncio.sleep(1000)
        return line

    async def story() -> None:
        source = read_lines(log.file, follow=True, position=log.place)
        running = source.pipe(adaptive_flat_map(handler, Fixed(1))).to(collect(found)).start()
        await asyncio.sleep(1)
        log.write(9)
        await asyncio.sleep(1)
        # As copytruncate of logrotate does.
        shutil.copy(log.file, f"{log.file}.1")
        os.truncate(log.file, 0)
        if noticed:
            await asyncio.sleep(10)
        running.cancel()
        await running.wait()

    run(story())
    assert found == log.lines(0)[:done]
    log.touch(log.file)
    log.write(2)
    assert run(log.read()) == log.lines(done)


def test_a_file_with_two_names_is_read_once(run: Run, log: Log) -> None:
    """As where the name that is followed is a link to the file with the date of the day."""
    first, second = (log.file.with_name(f"app-2026-11-{day}.log") for day in (27, 28))
    log.write(2, to=first)
    log.file.symlink_to(first)
    run(log.read())
    log.write(1, to=first)
    log.write(1, to=second)
    log.file.unlink()
    log.file.symlink_to(second)
    assert run(log.read()) == log.lines(2)


def compressed(path: Path) -> None:
    status = path.stat()
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    os.utime(packed, ns=(status.st_atime_ns, status.st_mtime_ns))
    path.unlink()


def decompressed(path: Path) -> None:
    packed = path.with_name(f"{path.name}.gz")
    status = packed.stat()
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    packed.unlink()


def test_a_compressed_file_is_refused_and_found_when_it_is_decompressed(run: Run, log: Log) -> None:
    log.write(2)
    run(log.read())
    for _ in range(3):
        log.write(1)
        log.number()
    log.write(1)
    third, second = Path(f"{log.file}.3"), Path(f"{log.file}.2")
    compressed(third)
    compressed(second)
    with pytest.raises(CannotOpen, match=r"no file beside it.*app\.log\.3\.gz.*gunzip"):
        run(log.read())
    decompressed(third)
    with pytest.raises(CannotOpen, match=r"app\.log\.2\.gz, which was rotated after it.*gunzip"):
        run(log.read())
    decompressed(second)
    assert run(log.read()) == log.lines(2)


def test_a_file_that_is_gone_is_said(run: Run, log: Log) -> None:
    log.write(2)
    run(log.read())
    log.file.unlink()
    (log.file.parent / "other.log").write_text("x\n")
    log.write(3)
    with pytest.raises(
        CannotOpen, match=r"no file beside it has.*from its start, remove .*position"
    ):
        run(log.read())


def test_two_copies_of_what_was_read_are_refused(run: Run, log: Log) -> None:
    log.write(2)
    run(log.read())
    for name in ("app.log.1", "app.log.bak"):
        shutil.copy2(log.file, log.file.with_name(name))
    log.file.write_text("new\n")
    with pytest.raises(CannotOpen, match=r"app\.log\.1 and .*app\.log\.bak all have"):
        run(log.read())


def test_names_and_times_that_disagree_are_refused(run: Run, log: Log) -> None:
    log.write(2)
    run(log.read())
    for _ in range(3):
        log.write(1)
        log.number()
    log.touch(Path(f"{log.file}.2"))
    log.write(1)
    with pytest.raises(CannotOpen, match=r"app\.log\.1, .*2 and .*3 disagree about their order"):
        run(log.read())


def test_a_later_file_with_a_name_of_another_kind_is_refused(run: Run, log: Log) -> None:
    log.write(2)
    run(log.read())
    log.number()
    log.write(1)
    log.date("app.log-20261128")
    log.write(1)
    with pytest.raises(CannotOpen, match=r"nothing tells whether .*app\.log-20261128"):
        run(log.read())


def test_a_file_with_a_new_inode_that_is_used_again_is_not_taken_for_the_old_one(
    run: Run, log: Log
) -> None:
    log.file.touch()
    run(log.read(1))
    os.rename(log.file, log.file.with_name("notes.txt"))
    log.write(1)
    with pytest.raises(CannotOpen, match="no file beside it"):
        run(log.read())


@pytest.mark.parametrize("seed", range(16))
@FOLLOWED
def test_nothing_is_lost_or_twice_whenever_runs_end_and_files_are_rotated(
    run: Run, log: Log, seed: int, follow: bool
) -> None:
    draw = random.Random(seed)
    rename = draw.choice([Log.number, Log.date])
    log.file.touch()
    seen = run(log.read(1))
    for _ in range(12):
        for _ in range(draw.randrange(4)):
            log.write(draw.randrange(1, 3))
            rename(log)
            log.write(draw.randrange(1, 3))

        async def story() -> None:
            reading = asyncio.ensure_future(
                log.read(draw.choice([0, 0.3, 3, 6, 20]), follow=follow)
            )
            if draw.random() < 0.5 and log.file.exists():
                await asyncio.sleep(draw.choice([0, 1, 4]))
                log.write(1)
                rename(log)
                log.write(1)
            seen.extend(await reading)

        run(story())
    log.write(1)
    seen += run(log.read(300, follow=follow))
    assert seen == log.lines(0)
