"""A stream: the description of one stage and of what is above it.

It holds no events and starts nothing. It can be connected any number of times; each connection is a
separate run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, TypeVar

from penstock.streams.base.errors import BuildError, WrongType
from penstock.streams.base.recorded import Call
from penstock.streams.protocol.fields import as_changed, refuse_missing
from penstock.streams.protocol.numbering import numbered_below
from penstock.streams.protocol.stage import RunningStage, Subscriber
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.forgetting import refuse_other_store, refuse_to_absorb
from penstock.streams.stages.user_stage import guarded

__all__ = ["Stream", "Whole"]

T_co = TypeVar("T_co", covariant=True)

Whole = Literal["number", "values"]


class Stream(Generic[T_co]):
    """A stream of `T_co` with demand: its readers request as many events as they can take.

    `attach(subscriber, run)` connects a stage to the stages above it; `info` describes this stage,
    and `above` is the stream it reads from (None for a source).
    """

    turns = False
    """Whether its events hold a turn, which the first working stage ends."""

    groups = False
    """Whether its values are groups, which only `spread` reads."""

    overflow: Any = None
    """A factory, given run and description, of the store for events beyond their keys' shares."""

    unread = ""
    """Why no stage and no sink can read its values, if that is so: the text of the BuildError."""

    whole: Whole | None = None
    """Which summary of all events above its only value is, their number or list; else None."""

    values: Any = None
    """The type of its values, where that is known."""

    known: dict[int, tuple[StageInfo, StageInfo, StageInfo]] | None = None
    """Of a stream that is made many times alike, as one in each group is: what was given to
    describe a stage, what was above it, and what was made of these, by the number of that above."""

    made_by: Call | None = None
    """The call of a function that has made it."""

    piped: tuple[Stream[Any], Sequence[Any]] | None = None
    """The stream that was piped to make it, and through which operators."""

    cut: tuple[Stream[Any], Sequence[Any]] | None = None
    """If its values are windows that nothing reads yet: what is cut, and by which operators."""

    def __init__(
        self,
        attach: Callable[[Subscriber[Any], Run], None],
        info: StageInfo,
        above: Stream[Any] | None = None,
        *,
        turns: bool | None = None,
        spreads: bool = False,
        values: Any = None,
        passes: bool = False,
    ) -> None:
        """`spreads`: the stage reads groups; any other stage on groups is a BuildError. `values`:
        the type of a source's values, if known. `passes`: the stage emits the values that came.
        """
        if not callable(attach) or not isinstance(info, StageInfo):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongType(
                "Flowable(attach, info) is for authors of sources: make a stream by "
                "from_iterable(...), from_async_iterable(...) or Flowable.of(observable, ...)"
            )
        if above is None:
            self.info: StageInfo = info.first()
        else:
            above.check_readable()
            self.known = above.known
            self.info = above._described_below(info)
            if above.groups and not spreads:
                raise BuildError(_cannot_read_groups(self.info, above))
            if passes and above.values is not None:
                values = above.values if info.placement.untouched else as_changed(above.values)
        self.values = values
        refuse_missing(self.info, values if above is None else above.values)
        self.above = above
        self._attach = attach
        self.turns = turns if turns is not None else above is not None and above.turns

    def _described_below(self, info: StageInfo) -> StageInfo:
        """The description of a stage that reads this stream."""
        known = self.known
        if known is not None:
            given, above, made = known.get(self.info.number, (None, None, info))
            # It was checked then, and those above it.
            if given is info and above is self.info:
                return made
        made = info.after(self.info)
        stages = [stream.info for stream in self.chain()]
        if info.inputs:
            made = numbered_below(made, stages)
        refuse_to_absorb(made, stages)
        refuse_other_store(made, stages)
        if known is not None:
            known[self.info.number] = info, self.info, made
        return made

    def check_readable(self) -> None:
        """Raise BuildError if no stage and no sink can read its values."""
        if self.unread:
            raise BuildError(self.unread)

    def attach(self, subscriber: Subscriber[Any], run: Run) -> None:
        """Connect a stage of the same run; for authors of operators only.

        An exception raised by a stage that is not the library's own fails its event and ends the
        stream.
        """
        run.attachments.begin()
        info = run.placed(self.info)
        reader, run.attaching = run.attaching, info
        below: Subscriber[Any] = guarded(subscriber, reader, run)
        for observer in run.observers:
            below = observer.arrow(info, below, reader, is_own=run.is_own(info))
        try:
            run.overrides.in_place_of(self)._attach(below, run)
        finally:
            run.attaching = reader
            run.attachments.end()

    def below(
        self,
        attach: Callable[[Subscriber[Any], Run], None],
        info: StageInfo,
        *,
        turns: bool | None = None,
        passes: bool = False,
    ) -> Stream[Any]:
        """A stream that reads this one, and offers what this one offers."""
        return Stream(attach, info, self, turns=turns, passes=passes)

    def then(
        self,
        make: Callable[[Subscriber[Any], Run, StageInfo], RunningStage],
        info: StageInfo,
        *,
        turns: bool | None = None,
        passes: bool = False,
    ) -> Stream[Any]:
        """This stream behind one more stage; for authors of operators.

        `make(downstream, run, info)` makes the stage for each run. `passes`: it emits the values
        that came.
        """

        def attach(downstream: Subscriber[Any], run: Run) -> None:
            info = run.placed(stream.info)
            stage = make(downstream, run, info)
            run.add_stage(info, stage.statistics)
            self.attach(stage, run)

        stream = self.below(attach, info, turns=turns, passes=passes)
        return stream

    def chain(self) -> list[Stream[Any]]:
        """This stream and all above it, source first."""
        stages: list[Stream[Any]] = []
        stream: Stream[Any] | None = self
        while stream is not None:
            stages.append(stream)
            stream = stream.above
        return stages[::-1]

    def __repr__(self) -> str:
        names = " > ".join(stage.info.name for stage in self.chain())
        return f"<Flowable {names}>"


def _cannot_read_groups(info: StageInfo, above: Stream[Any]) -> str:
    grouping = next(stage.info for stage in above.chain()[::-1] if stage.info.name == "group_by")
    refused = f"{info} works on single events, and {grouping} makes groups of them: "
    if info.placement.works:
        return refused + "insert spread() between them"
    return refused + (
        f"put spread() between them, or {info.name} before group_by or into "
        "group_by(each=lambda group: group.pipe(...), idle=...)"
    )
