"""Objects by their URLs, read through fsspec, resumed by their positions."""

from __future__ import annotations

import asyncio
import gzip
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from fsspec import filesystem, register_implementation
from fsspec.implementations.memory import MemoryFileSystem

from penstock import (
    Fixed,
    Store,
    adaptive_flat_map,
    collect,
    for_each,
    read_csv,
    read_jsonl,
    read_lines,
)
from penstock.streams.base.errors import BuildError, CannotOpen, InputCorrupt, MissingExtra
from penstock.streams.pipelines.flowable import Flowable

LINES = [f"line {n}" for n in range(2000)]
TEXT = "".join(f"{line}\n" for line in LINES).encode()


@pytest.fixture
def objects() -> Iterator[Any]:
    """An empty store of objects, in memory."""
    store = filesystem("memory")
    store.store.clear()
    yield store
    store.store.clear()


async def read(source: Flowable[Any]) -> list[Any]:
    values: list[Any] = []
    await source.to(collect(values)).run()
    return values


async def interrupted(source: Flowable[str], fails_at: str, limit: int = 1) -> list[str]:
    """The lines finished until the handler met `fails_at`, with `limit` at once."""
    done: list[str] = []

    async def handler(line: str) -> str:
        if line == fails_at:
            raise RuntimeError(line)
        return line

    with pytest.raises(RuntimeError):
        await source.pipe(adaptive_flat_map(handler, Fixed(limit))).to(for_each(done.append)).run()
    return done


def test_all_sources_of_lines_read_an_object_by_its_url(objects: Any) -> None:
    objects.pipe("/one.txt", b'\xef\xbb\xbf{"n":1}\r\n{"n":2}')
    objects.pipe("/rows.csv", b"id,name\n1,Ada\n2,Bob\n")
    assert asyncio.run(read(read_lines("memory://one.txt"))) == ['{"n":1}', '{"n":2}']
    assert asyncio.run(read(read_jsonl("memory://one.txt"))) == [{"n": 1}, {"n": 2}]
    rows = asyncio.run(read(read_csv("memory://rows.csv")))
    assert [row["name"] for row in rows] == ["Ada", "Bob"]


@pytest.mark.parametrize("name", ["lines.gz", "by-its-first-bytes"])
@pytest.mark.parametrize("keeps", [False, True])
def test_a_compressed_object_is_decompressed(
    objects: Any, tmp_path: Path, name: str, keeps: bool
) -> None:
    objects.pipe(f"/{name}", gzip.compress(TEXT))
    position = tmp_path / "position" if keeps else None
    assert asyncio.run(read(read_lines(f"memory://{name}", position=position))) == LINES


def test_objects_and_files_of_a_list_are_read_in_its_order(objects: Any, tmp_path: Path) -> None:
    objects.pipe("/b", b"b\n")
    objects.pipe("/a", b"a\n")
    (tmp_path / "file").write_text("file\n")
    paths = ["memory://b", tmp_path / "file", "memory://a"]
    assert asyncio.run(read(read_lines(paths))) == ["b", "file", "a"]


@pytest.mark.parametrize("kept", ["file", "store"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_next_run_goes_on_where_everything_before_was_finished(
    objects: Any, tmp_path: Path, kept: str, suffix: str
) -> None:
    url = f"memory://lines{suffix}"
    objects.pipe(f"/lines{suffix}", gzip.compress(TEXT) if suffix else TEXT)

    def source() -> Flowable[str]:
        position: Any = tmp_path / "position"
        return read_lines(url, position=Store(position) if kept == "store" else position)

    done = asyncio.run(interrupted(source(), "line 1234"))
    rest = asyncio.run(read(source()))
    assert done + rest == LINES
    assert asyncio.run(read(source())) == []


def test_the_next_run_reads_only_what_follows_the_offset(objects: Any, tmp_path: Path) -> None:
    objects.pipe("/lines", TEXT)
    source = read_lines("memory://lines", position=tmp_path / "position")
    done = asyncio.run(interrupted(source, "line 1234"))
    offset = len("".join(f"{line}\n" for line in done))
    file = objects.store["/lines"]
    pieces: list[bytes] = []
    file.read = lambda size: pieces.append(type(file).read(file, size)) or pieces[-1]
    asyncio.run(read(source))
    # The first bytes show whether it is compressed.
    assert pieces[1:] == [TEXT[offset:], b""]


def test_an_object_that_was_replaced_is_recognised(objects: Any, tmp_path: Path) -> None:
    objects.pipe("/lines", TEXT)
    source = read_lines("memory://lines", position=tmp_path / "position")
    asyncio.run(interrupted(source, "line 1234"))
    objects.pipe("/lines", TEXT)
    with pytest.raises(CannotOpen, match=r"memory://lines .*: it was replaced\. .*start, remove"):
        asyncio.run(read(source))


def test_each_of_several_objects_has_a_position(objects: Any, tmp_path: Path) -> None:
    urls = ["memory://one", "memory://two", "memory://three"]
    for name in ("one", "two", "three"):
        objects.pipe(f"/{name}", f"{name} 1\n{name} 2\n".encode())
    source = read_lines(urls, position=tmp_path / "positions")
    assert asyncio.run(interrupted(source, "two 2")) == ["one 1", "one 2", "two 1"]
    assert asyncio.run(read(source)) == ["two 2", "three 1", "three 2"]
    objects.pipe("/three", b"new\n")
    assert asyncio.run(read(source)) == ["new"]


def test_a_position_of_a_file_is_none_of_an_object(objects: Any, tmp_path: Path) -> None:
    file, position = tmp_path / "file", tmp_path / "position"
    file.write_bytes(TEXT)
    objects.pipe("/lines", TEXT)
    asyncio.run(interrupted(read_lines(file, position=position), "line 7"))
    with pytest.raises(CannotOpen, match="the position is not that of an object"):
        asyncio.run(read(read_lines("memory://lines", position=position)))


class Other(MemoryFileSystem):
    """The same objects by another scheme."""

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(path.replace(f"{cls.protocol}://", "memory://"))


class Slow(Other):
    """Opens a file when the event loop has said so."""

    protocol = "slow"
    asked, go = threading.Event(), threading.Event()

    def _open(self, *args: Any, **options: Any) -> Any:
        self.asked.set()
        assert self.go.wait(30), "the loop is blocked"
        return super()._open(*args, **options)


def test_the_loop_goes_on_while_a_store_lets_its_reader_wait(objects: Any) -> None:
    register_implementation("slow", Slow, clobber=True)
    objects.pipe("/a", b"a\n")
    Slow.asked.clear()
    Slow.go.clear()

    async def story() -> list[str]:
        async def release() -> None:
            await asyncio.to_thread(Slow.asked.wait, 30)
            Slow.go.set()

        values, _ = await asyncio.gather(read(read_lines("slow://a")), release())
        return values

    assert asyncio.run(story()) == ["a"]


class Broken(Other):
    """Its files end early, or cannot be read."""

    protocol = "broken"
    error: Exception | None = None

    def _open(self, *args: Any, **options: Any) -> Any:
        file = super()._open(*args, **options)
        file.read = self._read
        return file

    def _read(self, size: int) -> bytes:
        if size > 1000 and self.error is not None:
            raise self.error
        return b""


def test_what_breaks_while_it_is_read_is_an_error(
    objects: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_implementation("broken", Broken, clobber=True)
    objects.pipe("/a", b"a\n")
    with pytest.raises(InputCorrupt, match="broken://a ends at byte 0 of 2"):
        asyncio.run(read(read_lines("broken://a")))
    monkeypatch.setattr(Broken, "error", ValueError("no ranges"))
    with pytest.raises(OSError, match=r"ValueError: no ranges.*broken://a"):
        asyncio.run(read(read_lines("broken://a")))


def test_what_cannot_be_opened_is_said(objects: Any) -> None:
    with pytest.raises(CannotOpen, match=r"Cannot read memory://none: there is no such object\."):
        asyncio.run(read(read_lines("memory://none")))


@pytest.mark.skipif(sys.platform == "win32", reason="a path with a drive")
def test_an_object_over_http_is_resumed_and_recognised(tmp_path: Path) -> None:
    file, position = tmp_path / "lines", tmp_path / "position"
    file.write_bytes(TEXT)
    ranges: list[str | None] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        ranges.append(request.headers.get("Range"))
        return web.FileResponse(file)

    async def story() -> None:
        application = web.Application()
        application.router.add_get("/{name}", answer)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/lines?version=1"
        try:
            source = read_lines(url, position=position)
            done = await interrupted(source, "line 1234")
            assert done + await read(source) == LINES
            file.write_bytes(TEXT.upper())
            os.utime(file, (1, 1))
            with pytest.raises(CannotOpen, match="it was replaced"):
                await read(source)
        finally:
            await runner.cleanup()

    asyncio.run(story())


def test_what_urls_cannot_do_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BuildError, match=r"read_lines\('memory://a', follow=True\): an object"):
        read_lines("memory://a", follow=True)
    with pytest.raises(BuildError, match=r"^memory://\*\.gz: a pattern of URLs"):
        read_lines("memory://*.gz")
    with pytest.raises(BuildError, match="order='time'"):
        read_lines(["memory://a", "memory://b"], order="time")
    with pytest.raises(BuildError, match="fsspec does not know nosuch://"):
        read_lines("nosuch://a")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(MissingExtra, match=r"s3:// needs one more package: Install s3fs"):
        read_lines("s3://bucket/a")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"through fsspec: .*\[objects\]"):
        read_lines("memory://a")
