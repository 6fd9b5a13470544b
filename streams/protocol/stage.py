"""The signals between the stages of a running pipeline, and the base class of stages.

Demand goes up (`request`, `cancel`), events come down in lists (`on_subscribe`, `on_events`,
`on_error`, `on_completed`), otherwise as in Reactive Streams 1.0.4. The library's own stages trust
each other to keep the protocol, so that a list costs one call per stage: every n is an int of at
least 1, a terminal signal and `cancel` each come at most once.
`penstock.streams.boundary.strict_subscriber` enforces the specification's rules for third-party
subscribers, which get one event at a time.

A list is never empty, and never longer than the demand. The receiver owns it: the sender neither
reads nor changes it afterwards. A stage that is cancelled, or fails, inside a list returns in the
same call what it has not taken.

An error that is raised through the signals is none of the stream's: it is a KeyboardInterrupt, or
another one that is no Exception, of a function of the user's, and ends the run. Who has made the
events of a list returns those that have not ended then (`send_list`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from penstock.streams.errors import refuse_async_methods
from penstock.streams.protocol.event import Event, give_back_all

__all__ = [
    "CANCELLED",
    "CLOSED",
    "COMPLETING",
    "FAILED",
    "MOST_LETTERS",
    "OPEN",
    "UNBOUNDED",
    "UNCONNECTED",
    "EventSubscriber",
    "RunningStage",
    "Stage",
    "StageInfo",
    "State",
    "Subscriber",
    "Subscription",
    "is_second",
    "send_list",
]

A = TypeVar("A")
B = TypeVar("B")
T_contra = TypeVar("T_contra", contravariant=True)

# Dead letters that are open when the sources pause, beyond what their sink says it holds; the
# sources go on when half of them are out. Chosen: as many as the sink of a file takes at once.
MOST_LETTERS = 1024

UNBOUNDED = 2**63 - 1
"""A demand without a bound (rule 3.17)."""


class Subscription(Protocol):
    """The calls that a subscriber makes to the stage above it."""

    def request(self, n: int, /) -> None:
        """Request `n` more events."""

    def cancel(self) -> None:
        """Request no more; what is held above is returned to its source."""


# An Event may be written to, so it is invariant; a subscriber only reads, so one that takes any
# object serves a stream of ints. The checkers see no value that shows this.
class Subscriber(Protocol[T_contra]):  # type: ignore[misc]  # pyright: ignore[reportInvalidTypeVarUse]
    """The signals that a stage receives from the one above it."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """The first signal, with the subscription for requests."""

    def on_events(self, events: list[Event[Any]], /) -> None:
        """Events that were requested, in order; the receiver owns the list."""

    def on_error(self, error: BaseException, /) -> None:
        """The last signal: the stream failed."""

    def on_completed(self) -> None:
        """The last signal: the stream ended."""


class RunningStage(Subscriber[Any], Protocol):
    """A stage whose numbers are among the statistics of its running."""

    def statistics(self) -> dict[str, Any]:
        """Plain numbers by documented names."""
        ...


class EventSubscriber(Protocol[T_contra]):  # type: ignore[misc]  # pyright: ignore[reportInvalidTypeVarUse]
    """What `Flowable.connect` takes: a subscriber as in Reactive Streams, one event at a time."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """The first signal, with the subscription for requests."""

    def on_next(self, event: Event[Any], /) -> None:
        """An event that was requested."""

    def on_error(self, error: BaseException, /) -> None:
        """The last signal: the stream failed."""

    def on_completed(self) -> None:
        """The last signal: the stream ended."""


class _Unconnected:
    def request(self, n: int, /) -> None: ...

    def cancel(self) -> None: ...


UNCONNECTED: Subscription = _Unconnected()
"""The `upstream` of a stage that has no subscription yet."""


class _Subscribing(Protocol):
    upstream: Subscription


def send_list(subscriber: Subscriber[Any], events: list[Event[Any]]) -> None:
    """Send a list on; an error that comes back returns the events that have not ended."""
    try:
        subscriber.on_events(events)
    except BaseException:
        give_back_all(events)
        raise


def is_second(stage: _Subscribing, subscription: Subscription) -> bool:
    """Whether `stage` has a subscription; a second one is cancelled (rule 2.5)."""
    if stage.upstream is UNCONNECTED:
        return False
    subscription.cancel()
    return True


@dataclass(frozen=True, slots=True)
class StageInfo:
    """The description of a stage, before anything runs, for `penstock draw` and for errors.

    `bound` is the most events that ever wait in the stage, None for a stage whose user chose to
    have no bound; `spills` is how many more it may have in a temporary file.
    `number` counts from 1 at the source, over all streams that the pipeline reads
    (see `penstock.streams.protocol.numbering`); 0 is a stage that is not in a pipeline yet. `path`
    is the file, or the descriptor, that the stage reads or writes; `by` is the key of a stage that
    has one, and `reads` are the keys, each a field's name,
    a place or a function, that the stage reads of every event; `seconds` is the length of its
    window. `acknowledges`: a source that forgets an event
    once it has ended, also for later runs; `absorbs`: a stage that ends every event itself, and
    emits new events about them; `absorbs_inputs`: one that does so with those of `inputs`;
    `until_more`: one that keeps events until others come, however long that takes; `routed`:
    a stage's own sinks of dead letters; `continues`: a source that begins where an earlier running
    ended; `empties`: a sink that empties its file first; `appends`: one that only adds at the end
    of its file; `once`: why a source cannot begin again, if it cannot; `inputs`: the stages of each
    stream that the stage reads besides the one above it, source first; `is_source`: it reads no
    other stage; `shared`: what its readers share, the same object in each stream that reads it;
    `feeders`: the groups between which a stage rotates, if their number is given; `under`: what a
    stage with a limit is under another one; `has_share`: each of its keys has a share of the bound;
    `calls`: the name of the user's function that the stage calls with each event as soon as that
    comes, if it does so; `on_end`: called with the run of a pipeline that has ended, in which the
    stage may never have begun; `makes`: it may read streams that are made while it runs, whose
    stages hold what their own bounds say.

    For who runs a part of the pipeline in other processes: `keeps`, whether the stage keeps
    anything from one event to the next; `opens`, whether it reads the streams that are its values;
    `policy`, what it does with an event that fails; `work`, the options of its calls; `decode`, the
    function with which a source makes values of lines, if it is not the user's and nothing else
    has a part in them; `untouched`, whether the stage sends events on with the values that came,
    which no function of the user's has had. For `penstock check`: `inside()`, the stages inside
    each group.
    """

    name: str
    detail: str = ""
    bound: int | None = 0
    note: str = ""
    number: int = 0
    path: str | os.PathLike[str] | int | None = None
    by: Any = None
    reads: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    seconds: float | None = None
    acknowledges: bool = False
    absorbs: bool = False
    absorbs_inputs: bool = False
    works: bool = False
    until_more: bool = False
    routed: tuple[StageInfo, ...] = ()
    continues: bool = False
    empties: bool = False
    appends: bool = False
    within: StageInfo | None = None
    gathers: int = 1
    spills: int = 0
    weight: int = 1
    feeders: int | None = None
    once: str = ""
    inputs: tuple[tuple[StageInfo, ...], ...] = ()
    is_source: bool = False
    shared: object = field(default=None, compare=False, repr=False)
    under: Callable[[tuple[int, int]], StageInfo] | None = field(
        default=None, compare=False, repr=False
    )
    keeps: bool = field(default=True, compare=False, repr=False)
    opens: bool = field(default=False, compare=False, repr=False)
    policy: Any = field(default=None, compare=False, repr=False)
    work: Any = field(default=None, compare=False, repr=False)
    inside: Callable[[], list[StageInfo]] | None = field(default=None, compare=False, repr=False)
    calls: str = field(default="", compare=False, repr=False)
    on_end: Callable[[Any], object] | None = field(default=None, compare=False, repr=False)
    makes: bool = field(default=False, compare=False, repr=False)
    decode: Callable[[list[Any]], list[Any] | None] | None = field(
        default=None, compare=False, repr=False
    )
    untouched: bool = field(default=False, compare=False, repr=False)
    has_share: bool = field(default=False, compare=False, repr=False)

    @property
    def letters(self) -> int | None:
        """The most events that wait for the stage's sinks of dead letters; None: no bound.

        The letters that are open when the sources pause, plus what is in the stages then.
        """
        letters = 0
        for sink in self.routed:
            most = sink.most_open
            if most is None:
                return None
            letters += most
        return letters

    @property
    def most_open(self) -> int | None:
        """The letters that wait for this sink, or are in it, when the sources pause."""
        return None if self.bound is None else MOST_LETTERS + self.bound

    @property
    def own_bound(self) -> int | None:
        """The most of its own events that are ever unfinished in the stage; None: no bound."""
        return None if self.bound is None or self.letters is None else self.bound + self.letters

    @property
    def holds(self) -> int | None:
        """The most events of the source that are ever unfinished in the stage; None: no bound."""
        own = self.own_bound
        return None if own is None else own * self.weight

    @property
    def bounded(self) -> int:
        """The same for what has a bound: the stage's events, the letters about them, or both."""
        return ((self.bound or 0) + (self.letters or 0)) * self.weight

    @property
    def on_disk(self) -> int:
        """The most events of the source that are ever in the stage's temporary file."""
        return self.spills * self.weight

    def limited(self, limit: tuple[int, int] | None) -> StageInfo:
        """The same stage in a run with this limit, a floor and a ceiling, if it has one."""
        if limit is None:
            return self
        inputs = tuple(tuple(one.limited(limit) for one in column) for column in self.inputs)
        if self.under is None:
            return replace(self, inputs=inputs) if inputs else self
        other = self.under(limit)
        return replace(self, bound=other.bound, note=other.note, inputs=inputs)

    def first(self) -> StageInfo:
        """The same stage, a source, as the first one of a stream."""
        is_first = self.number == 1 and self.is_source
        return self if is_first else replace(self, number=1, is_source=True)

    def at(self, number: int) -> StageInfo:
        """The same stage, in its place in a pipeline."""
        return self if number == self.number else self._with(number=number)

    def after(self, above: StageInfo) -> StageInfo:
        """The same stage, below `above`."""
        weight = above.weight * above.gathers
        return self._with(number=above.number + 1, within=above.within, weight=weight)

    def _with(self, **changes: Any) -> StageInfo:
        """`replace`, in a third of the time: with `each=`, every group has stages of its own."""
        other = object.__new__(StageInfo)
        for name, put, value in zip(_NAMES, _PUTS, _VALUES(self), strict=True):
            put(other, changes.get(name, value))
        return other

    def __str__(self) -> str:
        if self.within is not None:
            return f"'{self.name}' in {self.within}"
        return f"stage {self.number} '{self.name}'" if self.number else f"'{self.name}'"


_NAMES = tuple(one.name for one in fields(StageInfo))
_VALUES = attrgetter(*_NAMES)
_PUTS = [getattr(StageInfo, name).__set__ for name in _NAMES]


class State(IntEnum):
    """The state of a stage; true once no more events come from above."""

    OPEN = 0
    COMPLETING = 1
    """What the stage holds is still sent."""
    FAILED = 2
    """Nothing more begins; the error is passed on when what has begun has ended."""
    CLOSED = 3
    """The terminal signal has been sent."""
    CANCELLED = 4
    """The stage below has cancelled."""


# Looking up a member of an enum takes six times as long as a name of a module (Python 3.11).
OPEN, COMPLETING, FAILED, CLOSED, CANCELLED = State


class Stage(Generic[A, B]):
    """A stage that keeps no events: it passes every signal on unchanged.

    The base of the stages that change or filter the events of a list; `on_events` is what they
    override. A stage that keeps events is a `penstock.streams.protocol.demand_stage.DemandStage`.
    """

    upstream: Subscription = UNCONNECTED

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_async_methods(cls)

    def __init__(self, downstream: Subscriber[B]) -> None:
        self.downstream = downstream
        self.state = OPEN

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if not is_second(self, subscription):
            self.upstream = subscription
            self.downstream.on_subscribe(self)

    def on_events(self, events: list[Event[Any]], /) -> None:
        self.downstream.on_events(events)

    def on_error(self, error: BaseException, /) -> None:
        self.state = CLOSED
        self.downstream.on_error(error)

    def on_completed(self) -> None:
        self.state = CLOSED
        self.downstream.on_completed()

    def request(self, n: int, /) -> None:
        self.upstream.request(n)

    def cancel(self) -> None:
        self.state = CANCELLED
        self.upstream.cancel()

    def statistics(self) -> dict[str, Any]:
        """Plain numbers by documented names."""
        return {}

    # For stages that filter.

    def _let_pass(self, passed: list[Event[Any]], of: int) -> None:
        """Send on those that passed, and request as many more as are missing `of` a list."""
        if passed:
            self.downstream.on_events(passed)
        missing = of - len(passed)
        if missing and not self.state:
            self._request_again(missing)

    def _request_again(self, n: int) -> None:
        """Request as many events as did not pass."""
        self.upstream.request(n)

    def _fail(self, error: Exception, passed: list[Event[Any]], rest: list[Event[Any]]) -> None:
        """The stream fails here: send on those that passed, and return the rest."""
        if passed:
            self.downstream.on_events(passed)
        give_back_all(rest)
        if not self.state:
            self.state = CLOSED
            try:
                self.upstream.cancel()
            finally:
                # Also if a stage of the user's own has raised.
                self.downstream.on_error(error)
