"""The jobs of this benchmark written by hand, without penstock: a parent and plain processes.

It shows what such processes cost at least in Python. There are no acknowledgements, no limit and no
retries; a key always stays in one process, and what a process has is lost if it is killed.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from select import select
from typing import Any, BinaryIO

from orjson import dumps, loads

CHUNK = 400
# Chunks that a process has at once. With more, both directions of its socket could be full.
IN_FLIGHT = 2
READ = 256 * 1024

_LENGTH = struct.Struct("<I")

Event = dict[str, Any]
Handler = Callable[[Event], Event]


def from_memory(events: list[Event]) -> Iterator[list[Event]]:
    """The events in chunks."""
    for first in range(0, len(events), CHUNK):
        yield events[first : first + CHUNK]


def from_file(path: str, seconds: float) -> Iterator[list[Event]]:
    """The objects of a file of JSON lines, each uuid once in so many seconds."""
    # What has left the window stays: a benchmark does not take that long.
    seen: dict[str, float] = {}
    rest = b""
    with open(path, "rb") as file:
        while data := file.read(READ):
            *lines, rest = (rest + data).split(b"\n")
            now = time.monotonic()
            fresh: list[Event] = []
            for event in map(loads, lines):
                uuid = event["uuid"]
                if uuid not in seen or seen[uuid] + seconds <= now:
                    seen[uuid] = now
                    fresh.append(event)
            yield fresh


def run_by_hand(
    handler: Handler, processes: int, chunks: Iterable[list[Event]], output: BinaryIO | None
) -> int:
    """Call the handler in so many processes, and write its results; without `output`, look at
    each of them. Returns how many there were.
    """
    helpers = [_Helper(handler, output is not None) for _ in range(processes)]
    parent = _Parent(helpers, output)
    for events in chunks:
        parent.deal(events)
    parent.end()
    return parent.finished


class _Helper:
    """A process as its parent sees it; `waiting` are the events that it will be sent."""

    def __init__(self, handler: Handler, writes: bool) -> None:
        self.end, theirs = socket.socketpair()
        self.waiting: list[Event] = []
        # When each chunk that it has was sent, and how many events are in it.
        self.sent: deque[tuple[float, int]] = deque()
        self.pid = os.fork()
        if not self.pid:
            _serve(theirs, handler, writes)
        theirs.close()


class _Parent:
    def __init__(self, helpers: list[_Helper], output: BinaryIO | None) -> None:
        self.finished = 0
        self._helpers = helpers
        self._output = output
        self._latencies: Counter[int] = Counter()

    def deal(self, events: list[Event]) -> None:
        """Give each event to the process that its key belongs to."""
        helpers = self._helpers
        for event in events:
            helper = helpers[hash(event["client_id"]) % len(helpers)]
            helper.waiting.append(event)
            if len(helper.waiting) == CHUNK:
                self._send(helper)
        self._take_answers(0.0)

    def end(self) -> None:
        """Wait for all answers, and for the end of the processes."""
        for helper in self._helpers:
            self._send(helper)
        while any(helper.sent for helper in self._helpers):
            self._take_answers(None)
        for helper in self._helpers:
            helper.end.shutdown(socket.SHUT_RDWR)
            os.waitpid(helper.pid, 0)

    def _send(self, helper: _Helper) -> None:
        while len(helper.sent) == IN_FLIGHT:
            self._take_answers(None)
        events, helper.waiting = helper.waiting, []
        helper.sent.append((time.monotonic(), len(events)))
        _send(helper.end, pickle.dumps(events, pickle.HIGHEST_PROTOCOL))

    def _take_answers(self, timeout: float | None) -> None:
        """Take what has come; with None, wait until something has."""
        busy = {helper.end: helper for helper in self._helpers if helper.sent}
        for end in select(busy, (), (), timeout)[0]:
            answer = _received(end)
            assert answer is not None
            sent_at, count = busy[end].sent.popleft()
            self.finished += count
            if self._output is None:
                for result in pickle.loads(answer):
                    bool(result)
            else:
                self._output.write(answer)
                self._latencies[int((time.monotonic() - sent_at) * 1e6)] += count


def _serve(end: socket.socket, handler: Handler, writes: bool) -> None:
    """The loop of a process: the events of a chunk, then what the handler has made of them."""
    status = 1
    try:
        while (data := _received(end)) is not None:
            results = list(map(handler, pickle.loads(data)))
            if writes:
                _send(end, b"".join([dumps(result) + b"\n" for result in results]))
            else:
                _send(end, pickle.dumps(results, pickle.HIGHEST_PROTOCOL))
        status = 0
    finally:
        os._exit(status)


def _send(end: socket.socket, data: bytes) -> None:
    end.sendall(_LENGTH.pack(len(data)) + data)


def _received(end: socket.socket) -> bytes | None:
    """The next message; None at the end."""
    head = end.recv(_LENGTH.size, socket.MSG_WAITALL)
    return end.recv(_LENGTH.unpack(head)[0], socket.MSG_WAITALL) if head else None
