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

from penstock.streams.base.errors import KeyOverShare, SpillBroken
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

# How many events came lately. Chosen: several times as many as a burst is likely to have.
_LATELY = 2**16

# Seconds until room is made on trial, at first and at most.
_FIRST_TRIAL, _LAST_TRIAL = 0.2, 5.0


class Backlog(Protocol):
    """The waiting events of one key.

    `events` are the first of them, in memory; behind them comes the `tail`, if there is one. An
    event that comes is given to `Overflow.add` if there are `limit` events, which is 0 where there
    is a tail. While it is `over`, because it has a tail or its sources leave the key, `taken` is
    called for what has left the stage, and `look` when events were taken. `held` events of the key
    are in front of the first ones, inside operators.
    """

    key: Any
    events: deque[Event[Any]]
    tail: Tail | None
    limit: int
    over: bool

    @property
    def held(self) -> int: ...


class Tail:
    """The events of a key behind the first ones: `blocks` in the file or, where that could not be
    written, in memory; then the newest in memory, `back`.

    The first ones and the events in operators have `room` places of the buffer, however many they
    are. An event of `back` and of a block in memory has its own place. `block` events are written
    together. There are `size` events in all, `kept` of them in blocks in memory.
    """

    __slots__ = ("back", "block", "blocks", "kept", "room", "size")

    def __init__(self, room: int) -> None:
        self.room = room
        self.block = min(_BLOCK, max(1, room // 4))
        self.blocks: deque[Block | list[Event[Any]]] = deque()
        self.back: list[Event[Any]] = []
        self.size = self.kept = 0

    def __len__(self) -> int:
        return self.size

    @property
    def first(self) -> Event[Any]:
        """The event behind the first ones."""
        block = self.blocks[0] if self.blocks else self.back
        return block[0] if isinstance(block, list) else block.events[0]


class Overflow:
    """The share of each key of one stage, and what is beyond it.

    `share` events of a key wait in memory; `policy` says what becomes of more: they `spill` to a
    temporary file, `wait` in the buffer, or are routed. With "spill" the sources of the key are
    asked to leave it from half of the share on, since some of its events may be on their way, until
    no more than a quarter waits. The stage takes the `vacated` places of its buffer, which may be
    fewer than 0, and fails with the `error`, if there is one. `backlogs` are those that have a
    tail.

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
        self.backlogs: dict[Backlog, None] = {}
        # How many events came, and how many keys lost their last waiting event, lately.
        self._came = self.ended = 0
        # How long after one trial the next one is due, and when that is; None before the first.
        self._pause = _FIRST_TRIAL
        self._trial_at: float | None = None
        self.spilled = 0
        """Events that have ever been written to the file."""
        self.peak = 0
        """The most that were in it at once."""
        self._run = run
        self._info = info
        self._spill = Spill(most_events, most_bytes)
        self._faults: ErrorPolicy | None = None
        # For each key that is left at sources, the functions that end this.
        self._left: dict[Backlog, dict[BaseSourceStage, Callable[[], None]]] = {}
        self._routed = 0
        self._refused: dict[str, int] = {}
        self._warned: set[str] = set()
        self.set(share, policy)

    def set(self, share: int, policy: OverflowPolicy) -> None:
        """Set the share and the policy, for events that come from now on."""
        self.share = share
        self.policy: OverflowPolicy = policy
        self.limit = sys.maxsize if policy == "wait" else share
        if policy == "spill":
            self.limit = max(1, share // 2)
        if isinstance(policy, Route):
            if self._faults is not None:
                self._routed += self._faults.routed
            self._faults = ErrorPolicy(policy, self._run, self._info)

    @property
    def routed(self) -> int:
        """How many events were routed, and accepted as dead letters."""
        return self._routed + (0 if self._faults is None else self._faults.routed)

    @property
    def on_disk(self) -> int:
        """How many events are in the file now."""
        return self._spill.events

    # Events on their way in.

    def add(self, backlog: Backlog, event: Event[Any]) -> int:
        """Put an event behind the others of its key, which has at least its limit of events.

        Returns how many more events wait: 0 if it was routed.
        """
        tail = backlog.tail
        if self.policy == "spill":
            self._leave(backlog, event)
        if tail is None:
            if len(backlog.events) < self.share:
                backlog.limit = self.share
                backlog.events.append(event)
                return 1
            if isinstance(self.policy, Route):
                self._route(backlog, event)
                return 0
            if self.policy == "wait":
                # The limit of an older policy.
                backlog.limit = self.limit
                backlog.events.append(event)
                return 1
            tail = self._begin(backlog)
        elif isinstance(self.policy, Route) and len(backlog.events) + len(tail) >= self.share:
            self._route(backlog, event)
            return 0
        tail.back.append(event)
        tail.size += 1
        if len(tail.back) >= tail.block:
            self._store(backlog, tail)
        return 1

    def _begin(self, backlog: Backlog) -> Tail:
        tail = backlog.tail = Tail(_used(backlog))
        backlog.limit = 0
        backlog.over = True
        self.backlogs[backlog] = None
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

    def _store(self, backlog: Backlog, tail: Tail) -> None:
        """Write the newest events of a key, or keep them where they are."""
        events, tail.back = tail.back, []
        block = self._written(backlog, events) if self.policy == "spill" else None
        if block is None:
            tail.blocks.append(events)
            tail.kept += len(events)
        else:
            tail.blocks.append(block)
            self.vacated += len(block.events)

    def _written(self, backlog: Backlog, events: list[Event[Any]]) -> Block | None:
        try:
            block = self._spill.write(events)
        except Refused as refused:
            why = "full" if refused.is_full else "unwritable"
            self._refused[why] = self._refused.get(why, 0) + len(events)
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
            return None
        self.spilled += len(block.events)
        self.peak = max(self.peak, self._spill.events)
        self._say(
            "spilled",
            backlog,
            "what is over its share, or fills the buffer, is in a temporary file, unfinished, "
            "while the other keys go on, and the handler gets a copy of its value. The choices are "
            'overflow="spill", "wait" or route(sink), and share=',
        )
        return block

    def _route(self, backlog: Backlog, event: Event[Any]) -> None:
        faults = self._faults
        assert faults is not None
        self.vacated += 1
        self._say("routed", backlog, "what is over its share goes to the dead letters")
        faults.survives(
            event,
            KeyOverShare(
                f"{self._info}: {len(backlog.events):,} events of the key {backlog.key!r} wait, "
                f"which is its share of the buffer (share={self.share})"
            ),
        )

    def _say(self, what: str, backlog: Backlog, text: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            many = len(backlog.events) + len(backlog.tail or ())
            self._run.errors.warn(
                f"{self._info}: {many:,} events of the key {backlog.key!r} wait (share="
                f"{self.share:,}): {text}. Other keys of the stage are not named; hottest_keys of "
                "its statistics has them."
            )

    # Events on their way out.

    def taken(self, backlog: Backlog, n: int = 1) -> None:
        """`n` events of a key that is over have left the stage, which counts their places as free:
        move others up into these, when a block of them fits, or have more read."""
        tail = backlog.tail
        if tail is not None:
            # The next events take the places of those that have left.
            self.vacated -= n
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
        events = tail.blocks[0] if tail.blocks else tail.back
        more = max(0, _used(backlog) + _count(events) - tail.room)
        if type(events) is Block and more > free:
            return False
        tail.room += more
        self.vacated -= more
        self._move_up(backlog, tail)
        return True

    def hand_over(self, before: Backlog, backlog: Backlog, n: int) -> None:
        """Put the tail of a key that is over behind `n` events that are about to come into another
        backlog.

        What the operators before it still hold is no longer part of the room.
        """
        before.over, backlog.over = False, True
        left = self._left.pop(before, None)
        if left is not None:
            self._left[backlog] = left
        tail = before.tail
        if tail is not None:
            tail.room += n - before.held
            before.tail, backlog.tail = None, tail
            backlog.limit = 0
            del self.backlogs[before]
            self.backlogs[backlog] = None

    def _move_up(self, backlog: Backlog, tail: Tail) -> None:
        events, blocks = backlog.events, tail.blocks
        while blocks and _used(backlog) + _count(blocks[0]) <= tail.room:
            block = blocks.popleft()
            tail.size -= _count(block)
            if isinstance(block, list):
                tail.kept -= len(block)
                self.vacated += len(block)
            events.extend(self._events_of(block))
        if not blocks and _used(backlog) + len(tail.back) <= tail.room:
            self.vacated += tail.room - _used(backlog)
            events.extend(tail.back)
            self._end(backlog)

    def _end(self, backlog: Backlog) -> None:
        backlog.tail = None
        backlog.over = backlog in self._left
        backlog.limit = self.share if backlog.over else self.limit
        del self.backlogs[backlog]

    # Room for others.

    def came(self, count: int) -> None:
        """Note events that came."""
        self._came += count
        if self._came > _LATELY:
            self._came //= 2
            self.ended //= 2

    @property
    def come_and_go(self) -> bool:
        """Whether there are keys whose events do not always wait: of the events that came lately,
        at least one in 64 was the last that waited of its key."""
        return self.ended * 64 >= self._came

    def until_room(self) -> float:
        """The seconds until it is to be asked again whether room is to be made for other keys; 0:
        it is to be made now.

        Where keys come and go, others will use it. Where all wait all the time, nothing shows that
        the source has others behind those that fill the buffer: room is made on trial, each time
        after twice as long, and at least every five seconds.
        """
        now = self._run.now()
        if self.come_and_go:
            self._pause, self._trial_at = _FIRST_TRIAL, None
            return 0.0
        if self._trial_at is None:
            self._trial_at = now + self._pause
        if now < self._trial_at:
            # Looked at more often, because keys may end.
            return min(_FIRST_TRIAL / 2, self._trial_at - now)
        self._pause = min(2 * self._pause, _LAST_TRIAL)
        self._trial_at = now + self._pause
        return 0.0

    def make_room(self, backlogs: Iterable[Backlog], wanted: int) -> bool:
        """Vacate so many places, first of the keys that have the most: the places of their last
        events, or half of the room of their first ones.

        Returns whether any was vacated; if not, the source waits, which is said once.
        Time: O(n log n) for n backlogs.
        """
        before = self.vacated
        fullest = sorted(backlogs, key=_places, reverse=True)
        for backlog in fullest:
            if _places(backlog) < 2 or self.vacated - before >= wanted:
                break
            self._vacate(backlog)
        if self.vacated > before:
            return True
        if fullest:
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
        return False

    def shrink(self) -> bool:
        """The same of the keys that are over their share; nothing is said."""
        backlog = max(self.backlogs, key=_places, default=None)
        return backlog is not None and self._vacate(backlog)

    def _vacate(self, backlog: Backlog) -> bool:
        before = self.vacated
        if self.policy == "spill" and _places(backlog):
            if backlog.tail is not None:
                self._store_what_waited(backlog, backlog.tail)
            if self.vacated == before:
                self._shrink(backlog)
        return self.vacated > before

    def _store_what_waited(self, backlog: Backlog, tail: Tail) -> None:
        """Write the events that could not be written when they came."""
        blocks = tail.blocks
        for place, block in enumerate(blocks):
            if isinstance(block, list):
                written = self._written(backlog, block)
                if written is None:
                    break
                blocks[place] = written
                tail.kept -= len(written.events)
                self.vacated += len(written.events)

    def _shrink(self, backlog: Backlog) -> None:
        """Write the last of the first events of a key."""
        events, held = backlog.events, backlog.held
        tail = backlog.tail or self._begin(backlog)
        room = min(tail.room, held + max(tail.block, (tail.room - held) // 2))
        while (many := _used(backlog) - room) > 0 and events:
            last = [events.pop() for _ in range(min(tail.block, many, len(events)))]
            last.reverse()
            block = self._written(backlog, last)
            if block is None:
                events.extend(last)
                room = tail.room
                break
            tail.blocks.appendleft(block)
            tail.size += len(last)
        self.vacated += tail.room - room
        tail.room = room
        if not (tail.blocks or tail.back):
            self.vacated += tail.room - _used(backlog)
            self._end(backlog)

    # The end.

    def withdraw(self, backlog: Backlog, is_gone: Callable[[Event[Any]], bool]) -> list[Event[Any]]:
        """Take the waiting events of a key for which this is true out, and move others up.

        The stage counts each of them as a place that is free.
        """
        gone: list[Event[Any]] = []
        events = backlog.events
        for _ in range(len(events)):
            event = events.popleft()
            (gone if is_gone(event) else events).append(event)
        if backlog.tail is not None:
            # The events that move up take their places.
            self.vacated -= len(gone)
            self._withdraw(backlog, backlog.tail, is_gone, gone)
        if backlog.over:
            self.look(backlog)
        return gone

    def _withdraw(
        self,
        backlog: Backlog,
        tail: Tail,
        is_gone: Callable[[Event[Any]], bool],
        gone: list[Event[Any]],
    ) -> None:

        def rest_of(events: list[Event[Any]]) -> list[Event[Any]]:
            rest: list[Event[Any]] = []
            for event in events:
                (gone if is_gone(event) else rest).append(event)
            return rest

        for _ in range(len(tail.blocks)):
            block = tail.blocks.popleft()
            rest = rest_of(self._events_of(block))
            if not rest:
                again: Block | list[Event[Any]] | None = None
            elif isinstance(block, list):
                again = rest
            else:
                again = self._written(backlog, rest)
                if again is None:
                    again = rest
                    self.vacated -= len(rest)
            if not isinstance(block, list):
                # They had no places.
                self.vacated -= len(block.events) - len(rest)
            if again is not None:
                tail.blocks.append(again)
        tail.back = rest_of(tail.back)
        tail.kept = sum(len(one) for one in tail.blocks if isinstance(one, list))
        tail.size = sum(map(_count, tail.blocks)) + len(tail.back)
        self._move_up(backlog, tail)

    def _events_of(self, block: Block | list[Event[Any]]) -> list[Event[Any]]:
        if isinstance(block, list):
            return block
        try:
            return self._spill.read(block)
        except SpillBroken as error:
            self.error = error
            self._broken += block.events
            return []

    def close(self) -> Iterator[list[Event[Any]]]:
        """All events of all tails, a list of them at a time; the file is removed behind them. The
        sources read on, for others that read them."""
        for backlog in list(self._left):
            self._read_again(backlog)
        for backlog in list(self.backlogs):
            tail = backlog.tail
            if tail is None:
                continue
            self.vacated += _places(backlog)
            while tail.blocks:
                yield self._events_of(tail.blocks.popleft())
            yield tail.back
            backlog.tail = None
        broken, self._broken = self._broken, []
        yield broken
        self.backlogs.clear()
        self._spill.close()
        error, self.error = self.error, None
        if error is not None:
            self._run.late_error(error)

    # Numbers.

    @property
    def reserved(self) -> int:
        """How many places are kept for events of tails. Time: O(keys over their share)."""
        return sum(
            tail.room - _used(one) for one in self.backlogs if (tail := one.tail) is not None
        )

    def statistics(self) -> dict[str, Any]:
        """The `share` of a key and, of the events beyond it, those `on_disk` now and at the
        `peak_on_disk`, their `bytes_on_disk`, all that were ever `spilled` or `over_share`, which
        were routed, and those `not_spilled`, by reason; `keys_over_share` and `keys_left` at
        their sources, now."""
        return {
            "share": self.share,
            "keys_over_share": len(self.backlogs),
            "keys_left": len(self._left),
            "on_disk": self._spill.events,
            "peak_on_disk": self.peak,
            "bytes_on_disk": self._spill.bytes,
            "spilled": self.spilled,
            "not_spilled": dict(self._refused),
            "over_share": self.routed,
        }


def _count(block: Block | list[Event[Any]]) -> int:
    return len(block) if isinstance(block, list) else len(block.events)


def _used(backlog: Backlog) -> int:
    """How many events of a key are first ones, or held by operators."""
    return len(backlog.events) + backlog.held


def _places(backlog: Backlog) -> int:
    """How many places of the buffer the waiting events of a key have."""
    tail = backlog.tail
    if tail is None:
        return len(backlog.events)
    return tail.room - backlog.held + len(tail.back) + tail.kept
