"""The description of a stage, before anything runs, for `penstock draw` and for errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.streams.base.errors import BuildError

__all__ = ["MOST_LETTERS", "Delivery", "Files", "Picture", "Placement", "StageInfo"]

# Dead letters that are open when the sources pause, beyond what their sink says it holds; the
# sources go on when half of them are out. Chosen: as many as the sink of a file takes at once.
MOST_LETTERS = 1024


class Delivery(NamedTuple):
    """When the events of a stage end, and whether a later running has them again."""

    acknowledges: bool = False
    """A source that forgets an event once it has ended, also for later runs."""
    enlists: bool = False
    """One whose events may be done in the commits of a store below it."""
    continues: bool = False
    """A source that begins where an earlier running ended."""
    once: str = ""
    """Why a source cannot begin again, if it cannot."""
    absorbs: bool = False
    """A stage that ends every event itself, and emits new events about them."""
    absorbs_inputs: bool = False
    """One that does so with the events of its `inputs`."""
    until_more: bool = False
    """One that keeps events until others come, however long that takes."""
    makes: bool = False
    """One that may read streams which are made while it runs, whose stages hold what their own
    bounds say."""
    store: Any = None
    """The store with the states of a stage, or with the marks of a source; what it is called where
    the states last as long as the run."""
    database: Any = None
    """The database of a sink's rows, equal to that of a store which is in the same one."""
    takes_again: bool = False
    """Whether the states of a stage stay right when an event that was done comes again."""
    inside: Callable[[], list[StageInfo]] | None = None
    """The stages inside each group."""
    ends: bool = False
    """A source that has all that is there for every process, and ends behind it."""
    whole: Callable[[Callable[[], object]], Any] | None = None
    """Makes a reading of the same source that has all of it, and not a share; it calls the function
    when the events that were there at its beginning have ended. None where it cannot be made."""
    answers: bool = False
    """A source whose callers may ask for the results of an event."""
    on_end: Callable[[Any], object] | None = None
    """Called with the run of a pipeline that has ended, in which the stage may never have begun."""


class Placement(NamedTuple):
    """Where a part of the pipeline may run: for workers, and for pipelines on many machines."""

    by: Any = None
    """The key of a stage that has one."""
    has_share: bool = False
    """Whether each of its keys has a share of the bound."""
    reads: tuple[Any, ...] = ()
    """The keys, each a field's name, a place or a function, that are read of every event."""
    seconds: float | None = None
    """The length of its window."""
    keeps: bool = True
    """Whether it keeps anything from one event to the next."""
    opens: bool = False
    """Whether it reads the streams that are its values."""
    works: bool = False
    """Whether it calls a handler, at the end of the events' turns."""
    work: Any = None
    """The options of these calls, a `CallOptions`."""
    decode: Callable[[list[Any]], list[Any] | None] | None = None
    """The function with which a source makes values of lines, if it is not the user's and nothing
    else has a part in them."""
    untouched: bool = False
    """Whether it sends events on with the values that came, which no function of the user's has
    had."""


class Picture(NamedTuple):
    """How a stage is shown, besides its name and its bound."""

    feeders: int | None = None
    """The groups between which it rotates, if their number is given."""
    under: Callable[[tuple[int, int] | int], StageInfo] | None = None
    """The description of a stage with a limit under another one."""
    calls: str = ""
    """The name of the user's function that it calls with each event as soon as that comes."""


class Files(NamedTuple):
    """The file, or the descriptor, that a stage reads or writes; of a source, also several."""

    # Any: a path, a descriptor or a list of paths.
    path: Any = None
    empties: bool = False
    """A sink that empties it first."""
    appends: bool = False
    """A sink that only adds at its end."""


class StageInfo(NamedTuple):
    """What a stage is, how much waits in it, and four facts about it.

    `bound` is the most events that ever wait in the stage, None for a stage whose user chose to
    have no bound; `spills` is how many more it may have in a temporary file. `number` counts from 1
    at the source, over all streams that the pipeline reads (see
    `penstock.streams.protocol.numbering`); 0 is a stage that is not in a pipeline yet. `within` is
    the stage whose groups have it. An event of it has `weight` events of the source, and one that
    it sends has `gathers` times as many. `is_source`: it reads no other stage; `inputs`: the stages
    of each stream that it reads besides the one above it, source first; `shared`: what its readers
    share, the same object in each stream that reads it. `merges`: it reads each stream whether or
    not events of the others come. `policy` is what it does with an event that fails, and `routed`
    are its own sinks of dead letters. `timed` gives its events their times; the
    results of one that is `untimed` have none, as they are not made of its events.
    """

    name: str
    detail: str = ""
    bound: int | None = 0
    note: str = ""
    number: int = 0
    within: StageInfo | None = None
    gathers: int = 1
    spills: int = 0
    weight: int = 1
    is_source: bool = False
    routed: tuple[StageInfo, ...] = ()
    inputs: tuple[tuple[StageInfo, ...], ...] = ()
    shared: object = None
    policy: Any = None
    delivery: Delivery = Delivery()
    placement: Placement = Placement()
    picture: Picture = Picture()
    files: Files = Files()
    timed: Any = None
    untimed: bool = False
    merges: bool = False

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

    def limited(self, limit: tuple[int, int] | int | None) -> StageInfo:
        """The same stage in a run with this limit, a floor and a ceiling, if it has one."""
        if limit is None:
            return self
        inputs = tuple(tuple(one.limited(limit) for one in column) for column in self.inputs)
        if self.picture.under is None:
            return self._replace(inputs=inputs) if inputs else self
        other = self.picture.under(limit)
        return self._replace(bound=other.bound, note=other.note, inputs=inputs)

    def first(self) -> StageInfo:
        """The same stage, a source, as the first one of a stream."""
        is_first = self.number == 1 and self.is_source
        return self if is_first else self._replace(number=1, is_source=True)

    def at(self, number: int) -> StageInfo:
        """The same stage, in its place in a pipeline."""
        return self if number == self.number else self._replace(number=number)

    def after(self, above: StageInfo) -> StageInfo:
        """The same stage, below `above`."""
        weight = above.weight * above.gathers
        return self._replace(number=above.number + 1, within=above.within, weight=weight)

    def require_no_group(self, outside: str) -> None:
        """Raise BuildError if the stage is inside a group; `outside` says what to put outside."""
        if self.within is not None:
            raise BuildError(
                f"{self}: a stage inside group_by(each=...) is made anew for each group: "
                f"put {outside}"
            )

    def __str__(self) -> str:
        if self.within is not None:
            return f"'{self.name}' in {self.within}"
        return f"stage {self.number} '{self.name}'" if self.number else f"'{self.name}'"
