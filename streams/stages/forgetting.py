"""The refusal of stages that would end events before their results are in a sink.

A source that forgets an event once it has ended gives it again after a crash only until then. So
such stages may only read sources that give everything again, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from penstock.streams.base.errors import BuildError, PenstockError
from penstock.streams.base.keys import all_events
from penstock.streams.protocol.acknowledgement import roots
from penstock.streams.protocol.event import Event
from penstock.streams.protocol.numbering import all_stages, with_above
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.stages.source_stage import BaseSourceStage

__all__ = [
    "not_seen",
    "refuse_early_end",
    "refuse_engine",
    "refuse_other_store",
    "refuse_to_absorb",
    "unknown_again",
]


def refuse_to_absorb(stage: StageInfo, above: Sequence[StageInfo]) -> None:
    """Raise BuildError if `stage` would end events of a source that forgets them then.

    `above` are the stages above it, source first. Time: O(n) in these for a stage that may end
    events, else O(1): a pipeline may have thousands of stages.
    """
    absorbing = _absorbing(stage)
    source = _forgetting(above) if absorbing else None
    if source is not None:
        raise BuildError(_early_end(absorbing, str(source)))
    for column in stage.inputs if stage.delivery.absorbs_inputs else ():
        source = _forgetting(column)
        if source is not None:
            raise BuildError(_early_end(str(stage), str(source)))


def refuse_other_store(stage: StageInfo, above: Sequence[StageInfo]) -> None:
    """Raise BuildError if `stage` keeps states elsewhere than a stage above it, or than the source
    keeps what is done: after a crash only one of them would have an event. So it does if its one
    state is of all events, in a store whose states move with partitions.

    `above` are the stages above it, source first. Time: O(n) in these for a stage with states and
    where streams meet, else O(1).
    """
    store = stage.delivery.store
    if store is None and not stage.inputs:
        return
    columns = (above, *stage.inputs)
    others = [one for column in columns for one in all_stages(column) if _keeps(one)]
    stores = [one for one in others if one.delivery.store is not None]
    if store is None:
        # Streams that meet here.
        if len({id(one.delivery.store) for one in stores}) > 1:
            first, second = (
                stores[0],
                next(one for one in stores if one.delivery.store is not stores[0].delivery.store),
            )
            raise BuildError(_two_stores(first, second))
        return
    if stage.placement.by is all_events and getattr(store, "moves", False):
        raise BuildError(
            f"{stage} has one state for all events, so that one process would have them all, and "
            f"the states in {store.name} move with the partitions of the events: give it by=, a "
            "constant if there is only one partition, or a store that one process uses"
        )
    for other in others:
        if other.delivery.enlists and hasattr(store, "marks_in"):
            continue
        if other.delivery.store is None:
            if stage.delivery.takes_again:
                continue
            raise BuildError(
                f"{stage} keeps states, and {other} keeps elsewhere what is done: a crash between "
                "the two would lose an event or count it twice. Give both the same Store: "
                "read_jsonl, read_lines and read_table(from_id=) as position=, read_kafka as "
                "offsets=; behind read_table of a queue only the stage needs one, as "
                "store=. No other source that forgets what is done can keep it in a store yet"
            )
        if other.delivery.store is not store:
            raise BuildError(_two_stores(other, stage))


def _keeps(stage: StageInfo) -> bool:
    return stage.delivery.acknowledges or stage.delivery.store is not None


def _two_stores(one: StageInfo, other: StageInfo) -> str:
    stores = [getattr(stage.delivery.store, "name", "memory") for stage in (one, other)]
    return (
        f"{one} keeps what is done in {stores[0]}, and {other} in {stores[1]}: after a crash only "
        "one of them would have an event. Give both the same store"
    )


def refuse_engine(stages: Iterable[StageInfo], *, moves_states: bool = False) -> None:
    """Raise BuildError if one of the stages would end events that come from servers, or keeps
    states on this machine; with `moves_states` they may be in a store from which they move."""
    stages = list(stages)
    for stage in all_stages(stages):
        # Another source is in place of the first one.
        if stage.delivery.store is not None and not stage.is_source:
            if not (moves_states and getattr(stage.delivery.store, "can_move", False)):
                advice = "run such a pipeline in one process, without --on"
                if moves_states:
                    advice += (
                        ', or give it a Store("nats://HOST:PORT/STREAM") or a '
                        'Store("postgresql://...", shared=True), whose states move with the keys'
                    )
                raise BuildError(
                    f"{stage} has a store that one process uses, and what reads the events from "
                    f"servers may give a key to another process each time: {advice}"
                )
            sources = (one for column in stage.inputs for one in all_stages(column))
            other = next((one for one in sources if one.is_source and one != stages[0]), None)
            if other is not None:
                raise BuildError(
                    f"{stage} reads {other}, whose events are in none of the partitions with which "
                    "states move: publish the events of both to one pipeline, with a field that "
                    "tells them apart, and read the branches of source.share(); or run it in one "
                    "process, without --on"
                )
        if absorbing := _absorbing(stage):
            raise BuildError(_early_end(absorbing, "what reads the events from servers"))


def not_seen(stages: Iterable[StageInfo]) -> Iterator[str]:
    """Warnings, one for each pair of a stage that reads streams which are made while it runs, and
    a stage that would end their events. The `stages` are given source first."""
    makers: list[StageInfo] = []
    for stage in stages:
        ended = [(maker, absorbing) for maker in makers if (absorbing := _absorbing(stage))]
        for column in stage.inputs:
            yield from not_seen(column)
            beside = [one for one in all_stages(column) if one.delivery.makes]
            ended += [(maker, str(stage)) for maker in beside if stage.delivery.absorbs_inputs]
            makers += beside
        for maker, absorbing in ended:
            yield (
                f"{maker} may read streams that are made while it runs. If one of them forgets "
                f"events once they have ended, as with position=, the run fails at {absorbing}"
            )
        makers += [stage] if stage.delivery.makes else []


def unknown_again(stages: Iterable[StageInfo]) -> Iterator[tuple[StageInfo, StageInfo]]:
    """The sources that do not know in the next run which of their events were done, each with the
    first stage below it whose states are there again. The `stages` are given source first."""
    sources: dict[int, dict[int, StageInfo]] = {}
    for stage, above in with_above(stages):
        # What a stage has of its inputs itself, such as the rows of a table, is not done below it.
        read = above[:1] if stage.delivery.absorbs_inputs else above
        found = {n: one for number in read for n, one in sources[number].items()}
        # What `stateful` without a store keeps is gone with the run.
        if hasattr(stage.delivery.store, "marks_in") and not stage.delivery.takes_again:
            for source in found.values():
                yield source, stage
            found = {}
        is_source = not above and stage.delivery.store is None and not stage.delivery.enlists
        sources[stage.number] = {stage.number: stage} if is_source else found


def refuse_early_end(stage: StageInfo, events: Iterable[Event[Any]]) -> None:
    """Raise PenstockError if `stage`, which ends these events, would have their source forget them,
    the source being a stream made while the pipeline runs."""
    for event in events:
        for origin, _ in roots(event):
            if isinstance(origin, BaseSourceStage) and origin.needs_ends:
                raise PenstockError(_early_end(str(stage), str(origin.info)))


def _early_end(stage: str, source: str) -> str:
    """The message for a stage that would end events of this source."""
    return (
        f"{stage} acknowledges events before their results are in a sink, and {source} does not "
        "give again what was acknowledged: the results would be lost if the process dies. Read "
        "what can be read again from its beginning, such as read_jsonl(path) without position=; or "
        "if it is count_over_time, give it a store="
    )


def _forgetting(column: Iterable[StageInfo]) -> StageInfo | None:
    return next((stage for stage in all_stages(column) if stage.delivery.acknowledges), None)


def _absorbing(stage: StageInfo) -> str:
    """The name of the stage, or of one inside its groups, if that ends events itself."""
    if stage.delivery.absorbs:
        return str(stage)
    inside = () if stage.delivery.inside is None else stage.delivery.inside()
    return next((f"'{one.name}' in {stage}" for one in inside if one.delivery.absorbs), "")
