"""The events of a key beyond its share of the memory: they wait at their source, if that can leave
them there, else in a temporary file, behind the rest of the key.

One slow key must not fill the buffer that all keys share. Source of the idea of a limit for each
queue on a shared buffer: A. K. Choudhury and E. L. Hahne, "Dynamic Queue Length Thresholds for
Shared-Memory Packet Switches", IEEE/ACM Transactions on Networking 6(2), 1998; that the longest
queue gives way when the buffer is full: B. Suter et al., "Buffer Management Schemes for Supporting
TCP in Gigabit Routers with Per-flow Queueing", IEEE JSAC 17(6), 1999.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from penstock.streams.base.errors import KeyOverShare, SpillBroken, counted
from penstock.streams.failures.error_policy import ErrorPolicy
from penstock.streams.failures.policy import OverflowPolicy, Route
from penstock.streams.keyed.spill import Block, Refused, Spill
from penstock.streams.protocol.acknowledgement import roots
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.source_stage import BaseSourceStage

__all__ = ["Backlog", "Overflow", "Tail"]

# Events that are written and read together. Chosen: more make a list that holds up the loop for
# longer, fewer make many blocks, and each costs some memory.
_BLOCK = 64


class Backlog(Protocol):
    """The waiting events of one key.

    `events` are the first of them, in memory; behind them comes the `tail`, if there is one. An
    event that comes is given to `Overflow.add` if there are `limit` events, which is 0 where there
    is a tail. While it is `over`, because it has a tail or its sources leave the key, `taken` is
    called for what has left the stage, and `look` when events were taken.
    """

    key: Any
    events: deque[Event[Any]]
    tail: Tail | None
    limit: int
    over: bool


class Tail:
    """The events of a key behind the first ones, in `blocks` of up to `block` events each.

    `stored` of them are in the file; the others, which came last or could not be written, are
    `kept` in memory, each in a place of the buffer. Until the first block fits, the places of
    events that have left are not given up: they are `free`.
    """

    __slots__ = ("block", "blocks", "free", "kept", "stored")

    def __init__(self, first: int) -> None:
        self.block = min(_BLOCK, max(1, first // 4))
        self.blocks: deque[Block] = deque()
        self.free = self.kept = self.stored = 0

    def __len__(self) -> int:
        return self.kept + self.stored

    @property
    def first(self) -> Event[Any]:
        """The event behind the first ones."""
        return self.blocks[0].events[0]


class Overflow:
    """The share of each key of one stage, and what is beyond it.

    `share` events of a key wait in memory; `policy` says what becomes of more: they `spill` to a
    temporary file, `wait` in the buffer, or are routed. With "spill" the sources of the key are
    asked to leave it from half of the share on, since some of its events may be on their way, until
    no more than a quarter waits.

    The stage counts a place of its buffer for each event that has come and has not left. It takes
    the `vacated` places, which may be fewer than 0: events in the file and routed ones have none,
    and those that a tail keeps free are no one else's. It fails with the `error`, if there is one.

    Memory: what has a place in the buffer, and what `Spill` needs. Time: constant per event.
    """

    def __init__(
        self,
        run: Run,
        info: StageInfo,
        share: int,
        policy: OverflowPolicy,
        most_events: int,
        most_bytes: int,
    ) -> None:
        self.vacated = 0
        self.error: SpillBroken | None = None
        # Events whose values could not be read back.
        self._broken: list[Event[Any]] = []
        self._tails: dict[Backlog, Tail] = {}
        self._run = run
        self._info = info
        self._spill = Spill(most_events, most_bytes)
        # For each key that is left at sources, the functions that end this.
        self._left: dict[Backlog, dict[BaseSourceStage, Callable[[], None]]] = {}
        # The last of them routes; letters of the others may still be accepted.
        self._routes: list[ErrorPolicy] = []
        self._refused: dict[str, int] = {}
        self._warned: set[str] = set()
        self.set(share, policy, ())

    def set(
        self, share: int | None, policy: OverflowPolicy | None, backlogs: Iterable[Backlog]
    ) -> None:
        """Set the share, the policy or both, for events that come from now on; `backlogs` are those
        of all keys."""
        if share is not None:
            self.share = share
        if policy is not None:
            self.policy: OverflowPolicy = policy
            if isinstance(policy, Route):
                self._routes.append(ErrorPolicy(policy, self._run, self._info))
        self.limit = sys.maxsize if self.policy == "wait" else self.share
        if self.policy == "spill":
            self.limit = max(1, self.share // 2)
        for backlog in backlogs:
            if backlog.tail is None:
                backlog.limit = self.limit

    @property
    def routed(self) -> int:
        """How many events were routed, and accepted as dead letters."""
        return sum(one.routed for one in self._routes)

    @property
    def on_disk(self) -> int:
        """How many events are in the file now."""
        return self._spill.events

    # Events on their way in.

    def add(self, backlog: Backlog, event: Event[Any]) -> int:
        """Put an event behind the others of its key, which has at least its limit of events.

        Returns how many more events wait: 0 if it was routed.
        """
        tail, policy = backlog.tail, self.policy
        if policy == "spill":
            self._leave(backlog, event)
        elif policy != "wait" and len(backlog.events) + len(tail or ()) >= self.share:
            self._route(backlog, event)
            return 0
        if tail is None:
            if policy == "wait" or len(backlog.events) < self.share:
                # Its limit was that of an older policy, or at which its sources are asked.
                backlog.limit = max(self.share, self.limit)
                backlog.events.append(event)
                return 1
            tail = self._begin(backlog)
        blocks = tail.blocks
        if not blocks or blocks[-1].number or len(blocks[-1].events) >= tail.block:
            blocks.append(Block([]))
        last = blocks[-1]
        last.events.append(event)
        tail.kept += 1
        if policy == "spill" and len(last.events) >= tail.block:
            self._write(backlog, tail, last)
        return 1

    def _begin(self, backlog: Backlog) -> Tail:
        tail = self._tails[backlog] = backlog.tail = Tail(len(backlog.events))
        backlog.limit = 0
        backlog.over = True
        return tail

    def _leave(self, backlog: Backlog, event: Event[Any]) -> None:
        """Ask the source of an event to leave the rest of its key, if it can."""
        source, token = next(roots(event), (None, None))
        left = self._left.get(backlog)
        if not isinstance(source, BaseSourceStage) or (left is not None and source in left):
            return
        end = source.leave(token, backlog.key)
        if end is None:
            return
        if left is None:
            left = self._left[backlog] = {}
            backlog.over = True
        left[source] = end
        self._say(
            "left",
            backlog,
            f"its other events stay where {source.info} reads them, until fewer of it wait, and "
            "the other keys go on",
        )

    def _read_again(self, backlog: Backlog) -> None:
        """Let the sources of a key read on."""
        for end in self._left.pop(backlog, {}).values():
            end()
        if backlog.tail is None:
            backlog.limit = self.limit
            backlog.over = False

    def _route(self, backlog: Backlog, event: Event[Any]) -> None:
        self.vacated += 1
        self._say("routed", backlog, "what is over its share goes to the dead letters")
        self._routes[-1].survives(
            event,
            KeyOverShare(
                f"{self._info}: {counted(len(backlog.events), 'event')} of the key "
                f"{backlog.key!r} wait, which is its share of the buffer (share={self.share})"
            ),
        )

    def _say(self, what: str, backlog: Backlog, text: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            many = len(backlog.events) + len(backlog.tail or ())
            self._run.errors.warn(
                f"{self._info}: {counted(many, 'event')} of the key {backlog.key!r} wait (share="
                f"{self.share:,}): {text}. Other keys of the stage are not named; hottest_keys of "
                "its statistics has them."
            )

    # The file, and places.

    def _write(self, backlog: Backlog, tail: Tail, block: Block) -> bool:
        """Move a block in memory to the file; False if that does not take it."""
        n = len(block.events)
        try:
            self._spill.write(block)
        except Refused as refused:
            why = "full" if refused.is_full else "unwritable"
            self._refused[why] = self._refused.get(why, 0) + n
            self._say(
                why,
                backlog,
                f"it waits in the buffer, and when that is full so does the source: {refused}. "
                + (
                    "Raise spill_events= or spill_bytes=, or send what is over the share to "
                    "dead letters by overflow=route(sink)"
                    if refused.is_full
                    else 'Give overflow="wait" or overflow=route(sink) if that is intended'
                ),
            )
            return False
        tail.kept -= n
        tail.stored += n
        self.vacated += n
        self._say(
            "spilled",
            backlog,
            "what is over its share, or fills the buffer, is in a temporary file, unfinished, "
            "while the other keys go on, and the handler gets a copy of its value. The choices are "
            'overflow="spill", "wait" or route(sink), and share=',
        )
        return True

    def _read(self, tail: Tail, block: Block) -> list[Event[Any]]:
        """The events of a block, which are all in memory now."""
        if block.number:
            n = len(block.events)
            tail.stored -= n
            self.vacated -= n
            try:
                self._spill.read(block)
                tail.kept += n
            except SpillBroken as error:
                self.error = error
                self._broken += block.events
                block.events = []
        return block.events

    def _keep(self, tail: Tail, n: int) -> None:
        """Keep `n` more places free for a tail; below 0, give as many up."""
        tail.free += n
        self.vacated -= n

    # Events on their way out.

    def taken(self, backlog: Backlog, n: int = 1) -> None:
        """`n` events of a key that is over have left the stage, which counts their places as free:
        move others up into these, when a block of them fits, or have more read."""
        tail = backlog.tail
        if tail is not None:
            self._keep(tail, n)
            self._move_up(backlog, tail)
        self.look(backlog)

    def look(self, backlog: Backlog) -> None:
        """Have the sources read on, if little waits of a key that is over."""
        if backlog.tail is None and len(backlog.events) <= self.share // 4:
            self._read_again(backlog)

    def lend(self, backlog: Backlog, free: int) -> bool:
        """Move a block up that does not fit, if it needs at most so many free places."""
        tail = backlog.tail
        assert tail is not None
        block = tail.blocks[0]
        more = max(0, len(block.events) - tail.free)
        if block.number and more > free:
            return False
        self._keep(tail, more)
        self._move_up(backlog, tail)
        return True

    def hand_over(self, before: Backlog, backlog: Backlog) -> None:
        """Put the tail of a key behind the events that are about to come into another backlog."""
        before.over, backlog.over = False, True
        left = self._left.pop(before, None)
        if left is not None:
            self._left[backlog] = left
        tail, before.tail = before.tail, None
        if tail is not None:
            del self._tails[before]
            self._tails[backlog] = backlog.tail = tail
            backlog.limit = 0

    def _move_up(self, backlog: Backlog, tail: Tail) -> None:
        while tail.blocks and len(tail.blocks[0].events) <= tail.free:
            events = self._read(tail, tail.blocks.popleft())
            tail.kept -= len(events)
            self._keep(tail, -len(events))
            backlog.events.extend(events)
        if not tail.blocks:
            self._end(backlog, tail)

    def _end(self, backlog: Backlog, tail: Tail) -> None:
        self._keep(tail, -tail.free)
        del self._tails[backlog]
        backlog.tail = None
        backlog.over = backlog in self._left
        backlog.limit = self.limit

    # Room for others.

    def make_room(self, backlogs: Iterable[Backlog], wanted: int) -> None:
        """Vacate so many places, first of the keys that have the most: the places of their last
        events, or half of the room of their first ones.

        If there is none, the source waits, which is said once. Time: O(n log n) for n backlogs.
        """
        before = self.vacated
        fullest = sorted(backlogs, key=_places, reverse=True)
        for backlog in fullest:
            if _places(backlog) < 2 or self.vacated - before >= wanted:
                break
            self._vacate(backlog)
        if fullest and self.vacated == before:
            self._say(
                "waits",
                fullest[0],
                "the buffer is full, and the source waits, although handlers are free: the other "
                "keys wait, too. "
                + (
                    "Raise buffer=, spill_events= or spill_bytes="
                    if self.policy == "spill"
                    else 'The choices are overflow="spill" or route(sink), and a larger buffer='
                ),
            )

    def shrink(self) -> bool:
        """The same of the key over its share that has the most; nothing is said."""
        backlog = max(self._tails, key=_places, default=None)
        return backlog is not None and self._vacate(backlog)

    def _vacate(self, backlog: Backlog) -> bool:
        """Write the blocks that were refused when they came, or else some of the first events."""
        before = self.vacated
        if self.policy == "spill" and _places(backlog):
            if (tail := backlog.tail) is not None:
                for block in tail.blocks:
                    is_due = not block.number and len(block.events) >= tail.block
                    if is_due and not self._write(backlog, tail, block):
                        break
            if self.vacated == before:
                self._shrink(backlog)
        return self.vacated > before

    def _shrink(self, backlog: Backlog) -> None:
        """Give up half of the places of the first events of a key, the free ones first.

        A block still fits into what is left of them.
        """
        events = backlog.events
        tail = backlog.tail or self._begin(backlog)
        rest = max(tail.block, (tail.free + len(events)) // 2)
        self._keep(tail, min(0, max(0, rest - len(events)) - tail.free))
        while (many := min(tail.block, len(events) - rest)) > 0:
            block = Block([events.pop() for _ in range(many)][::-1])
            tail.blocks.appendleft(block)
            tail.kept += many
            if not self._write(backlog, tail, block):
                tail.kept -= many
                events.extend(tail.blocks.popleft().events)
                break
        if not tail.blocks:
            self._end(backlog, tail)

    # The end.

    def withdraw(self, backlog: Backlog, is_gone: Callable[[Event[Any]], bool]) -> list[Event[Any]]:
        """Take the waiting events of a key for which this is true out, and move others up.

        The stage counts each of them as a place that is free.
        """
        gone: list[Event[Any]] = []

        def rest_of(events: Iterable[Event[Any]]) -> list[Event[Any]]:
            rest: list[Event[Any]] = []
            for event in events:
                (gone if is_gone(event) else rest).append(event)
            return rest

        first = rest_of(backlog.events)
        backlog.events.clear()
        backlog.events.extend(first)
        tail = backlog.tail
        if tail is not None:
            self._keep(tail, len(gone))
            for _ in range(len(tail.blocks)):
                block = tail.blocks.popleft()
                was_in_file = block.number
                events = self._read(tail, block)
                block.events = rest_of(events)
                tail.kept -= len(events) - len(block.events)
                if block.events:
                    tail.blocks.append(block)
                    if was_in_file:
                        self._write(backlog, tail, block)
            self._move_up(backlog, tail)
        if backlog.over:
            self.look(backlog)
        return gone

    def close(self) -> Iterator[list[Event[Any]]]:
        """All events of all tails, a list of them at a time; the file is removed behind them. The
        sources read on, for others that read them."""
        for backlog in list(self._left):
            self._read_again(backlog)
        for backlog, tail in list(self._tails.items()):
            self.vacated += tail.free + len(tail)
            while tail.blocks:
                yield self._read(tail, tail.blocks.popleft())
            backlog.tail = None
        broken, self._broken = self._broken, []
        self.vacated += len(broken)
        yield broken
        self._tails.clear()
        self._spill.close()
        error, self.error = self.error, None
        if error is not None:
            self._run.late_error(error)

    # Numbers.

    @property
    def reserved(self) -> int:
        """How many places are kept free for events of tails. Time: O(keys over their share)."""
        return sum(tail.free for tail in self._tails.values())

    def statistics(self) -> dict[str, Any]:
        """The `share` of a key and, of the events beyond it, those `on_disk` now and at the
        `peak_on_disk`, their `bytes_on_disk`, all that were ever `spilled` or `over_share`, which
        were routed, and those `not_spilled`, by reason; `keys_over_share` and `keys_left` at
        their sources, now."""
        return {
            "share": self.share,
            "keys_over_share": len(self._tails),
            "keys_left": len(self._left),
            "on_disk": self._spill.events,
            "peak_on_disk": self._spill.peak,
            "bytes_on_disk": self._spill.bytes,
            "spilled": self._spill.written,
            "not_spilled": dict(self._refused),
            "over_share": self.routed,
        }


def _places(backlog: Backlog) -> int:
    """How many places of the buffer the waiting events of a key have."""
    tail = backlog.tail
    return len(backlog.events) + (0 if tail is None else tail.free + tail.kept)
