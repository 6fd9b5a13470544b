"""Placement of stages: which run in workers, and which in the process that reads the source.

The workers run the stage that calls the handler, and the stages around it that keep nothing from
one event to the next: a part of the events may pass through one worker, the rest through another. A
plain `group_by` and its `spread` directly above are among them, because all events of a key are in
one worker at a time. Whatever else keeps, counts or combines events sees all of them, in the
parent. Behind the last stage the workers open the sinks that say so.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from penstock.streams.base.errors import BuildError, WrongType, describe
from penstock.streams.base.keys import key_function
from penstock.streams.execution.options import CallOptions
from penstock.streams.io.paths import file_of
from penstock.streams.keyed.overflow import Overflow
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.running.description import description
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import Sink
from penstock.streams.stages.stream import Stream

__all__ = ["Section", "section_of", "unfit_key"]


def _no_shares(run: Run, info: StageInfo) -> Overflow:
    return Overflow(run, info, share=1, policy="wait", most_events=1, most_bytes=1)


@dataclass(frozen=True, slots=True)
class Section:
    """The part of a pipeline that runs in workers.

    `above` is the last stream in front of it, `streams` are its own, of which `working` calls the
    handler. `by` is the key of which all events go to one worker at a time; None: any event may go
    to any worker. `overflow` makes the store for events over a key's share. `file` is the file
    whose lines the source reads, "" without one. `decode`, if any, makes the section's values from
    these lines, and `encode` makes, from its results, the bytes that the `encoding` sinks write.
    Each worker opens `sinks`, given with their descriptions in the pipeline; `returns`: the results
    go on from the section, to other sinks.
    """

    above: Stream[Any]
    streams: tuple[Stream[Any], ...]
    working: StageInfo
    by: Any
    file: str = ""
    decode: Callable[[list[Any]], list[Any] | None] | None = None
    encode: Callable[[Any], bytes] | None = None
    encoding: tuple[Sink[Any], ...] = ()
    sinks: tuple[tuple[StageInfo, Sink[Any]], ...] = ()
    returns: bool = True
    overflow: Callable[[Run, StageInfo], Overflow] = _no_shares

    @property
    def last(self) -> Stream[Any]:
        """The stream that comes out of it."""
        return self.streams[-1]

    @property
    def infos(self) -> list[StageInfo]:
        """Its stages, without the sinks."""
        return [stream.info for stream in self.streams]

    @property
    def infos_with_sinks(self) -> list[StageInfo]:
        """All that runs in the workers."""
        return [*self.infos, *(info for info, _ in self.sinks)]

    @property
    def kept(self) -> int:
        """The most events of a key that one worker may need, to fill a call or a sink."""
        work = self.work
        sinks = sum(info.bound or 0 for info, _ in self.sinks)
        return sinks + (work.window if work.limiter is None else 1)

    @property
    def work(self) -> CallOptions:
        """The options of its working stage."""
        options: CallOptions = self.working.placement.work
        return options

    def bound(self, limit: tuple[int, int] | int | None = None) -> int | None:
        """The most events of the source that are ever unfinished in it, as in one process; None: no
        bound."""
        holds = [info.limited(limit).holds for info in self.infos_with_sinks]
        known = [bound for bound in holds if bound is not None]
        return sum(known) if len(known) == len(holds) else None


def unfit_key(section: Section, value: Any) -> WrongType | None:
    """The error of a value whose key is not equal to the key of its copy in a worker."""
    read = key_function(section.by)
    try:
        key, copied = read(value), read(pickle.loads(pickle.dumps(value)))
    except Exception:
        # Reported where the value is sent, or its key is read.
        return None
    kind = cast(Any, type(key))
    if copied is key or kind.__eq__ is not object.__eq__:
        return None
    return WrongType(
        f"{section.infos[0]}: {describe(key)} is equal to nothing but itself, so its copy in a "
        "worker process is another key, and order per key would be lost. Give its class __eq__ and "
        "__hash__, group by a field of it, or leave workers= out"
    )


def section_of(chain: Sequence[Stream[Any]], sinks: Sequence[Sink[Any]] = ()) -> Section:
    """The section of a pipeline, whose streams are given source first.

    Raises BuildError if no stage calls a handler, or its limit is shared, and for a sink that is to
    be opened in the workers and cannot.
    """
    at = next((at for at, stream in enumerate(chain) if stream.info.placement.works), None)
    if at is None:
        raise BuildError(
            "workers= runs the handler of adaptive_flat_map or batch in several processes, and "
            "this pipeline has neither: leave it out, or put what takes long into a handler"
        )
    working = chain[at].info
    if working.placement.work is None:
        raise BuildError(f"{working} cannot run in workers: leave workers= out")
    if working.placement.work.is_shared:
        raise BuildError(
            f"{working} shares its limit with other stages, which works within one process only: "
            "give it a limit of its own, or leave workers= out"
        )
    first = at
    while first > 1 and _passes(chain[first - 1]):
        first -= 1
    if chain[first - 1].groups:
        # `chain[first]` is the spread, which goes where its group_by is.
        first += 1 if chain[first - 1].info.placement.keeps else -1
    last = at
    while last + 1 < len(chain) and _passes(chain[last + 1]):
        last += 1
    if last + 1 < len(chain) and chain[last + 1].info.placement.opens:
        # What makes streams of the results is where these are read: they cannot be sent.
        last = at
    source, *between = [stream.info for stream in chain[:first]]
    decode = source.placement.decode if all(info.placement.untouched for info in between) else None
    file = "" if source.files.path is None else file_of(source.files.path)
    streams = tuple(chain[first : last + 1])
    section = Section(chain[first - 1], streams, working, None, file, decode)
    grouped = chain[first]
    if grouped.groups:
        section = replace(section, by=grouped.info.placement.by, overflow=grouped.overflow)
    ends = zip(description(chain[-1], sinks)[len(chain) :], sinks, strict=True)
    inside = tuple((info, sink) for info, sink in ends if sink.in_workers)
    if last + 1 < len(chain):
        if inside:
            above = chain[last + 1].info
            raise _cannot_be_opened(inside[0][0], f"{above} above it runs in the parent")
        return section
    if inside and working.placement.work.ordered:
        raise _cannot_be_opened(
            inside[0][0], f"{working} has ordered=True, and only the parent puts results in order"
        )
    others = [sink for sink in sinks if not sink.in_workers]
    reading = tuple(sink for sink in others if sink.reads_values)
    encoders = {sink.encode for sink in reading}
    encode = encoders.pop() if len(encoders) == 1 else None
    if inside and not reading:
        encode = _nothing
    return replace(
        section,
        encode=encode,
        encoding=() if encode is None else reading,
        sinks=inside,
        returns=bool(others),
    )


def _cannot_be_opened(sink: StageInfo, why: str) -> BuildError:
    return BuildError(
        f"{sink} cannot be opened in the workers, because {why}. Leave in_workers=True out, so "
        "that the parent opens it, or leave workers= out"
    )


def _nothing(value: Any) -> bytes:
    """The bytes sent for a result whose value nothing reads."""
    return b""


def _passes(stream: Stream[Any]) -> bool:
    """Whether it passes single events on, and keeps nothing of them."""
    return not (stream.info.placement.keeps or stream.groups)
