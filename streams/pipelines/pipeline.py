"""A pipeline: a source, operators and sinks, as a value that can be run many times."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Generator, Hashable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, cast

from penstock.streams.base.clock import running_loop
from penstock.streams.base.errors import BuildError, WrongType, describe
from penstock.streams.base.validation import is_count
from penstock.streams.failures.policy import LettersOnly, OnError
from penstock.streams.io.paths import (
    Written,
    refuse_overwriting,
    refuse_same_file,
    refuse_to_empty,
    standard_streams_of,
)
from penstock.streams.pipelines.running import Report, Running
from penstock.streams.protocol.blame import is_ours
from penstock.streams.protocol.fields import refuse_missing
from penstock.streams.protocol.numbering import all_stages
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.running.description import description
from penstock.streams.runtime.overrides import Overrides
from penstock.streams.runtime.process.loading import check_not_loading
from penstock.streams.runtime.process.os_signals import drain_on_signals
from penstock.streams.runtime.process.standard_streams import taken
from penstock.streams.runtime.process.unrun import hint_if_unused, note_use
from penstock.streams.stages.forgetting import refuse_engine
from penstock.streams.stages.sink_stage import Sink
from penstock.streams.stages.stream import Stream

if TYPE_CHECKING:
    from penstock.streams.definitions.definition import Definition
    from penstock.streams.workers.supervisor import WorkerFactory

__all__ = ["Engine", "Pipeline", "PipelineRun", "new_event_loop", "run"]


class Engine(NamedTuple):
    """The overrides of a pipeline, which is otherwise unchanged.

    `source` replaces the pipeline's own source. `on_error` replaces the policy "stop", with which
    one bad event would stop one worker after the other, also as what `retry` does in the end.
    `unique_by` is the key by which the engine itself drops duplicates. A `distinct_within` by that
    key directly behind the source is then left out: it would drop events that are delivered again.
    With `moves_states` the states of a store move with the partitions of the source.
    """

    source: Stream[Any]
    on_error: OnError
    unique_by: str | int | Callable[[Any], Hashable] | None = None
    moves_states: bool = False

    def overrides(self, source: Stream[Any] | None) -> Overrides:
        """The overrides of a pipeline that begins with `source`."""
        overrides = Overrides(source, self.source)
        overrides.is_on_cluster = True
        overrides.in_place_of_stop = self.on_error
        overrides.unique_by = self.unique_by
        overrides.moves_states = self.moves_states
        return overrides


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A stream and its sinks. Immutable; it can be run any number of times.

    Made by `flowable.to(sink, ...)`. Raises BuildError without a sink, for an object that is not a
    sink or takes only dead letters, and for a stream of groups, which a sink cannot read.
    """

    flowable: Stream[Any]
    sinks: tuple[Sink[Any], ...]

    def __post_init__(self) -> None:
        if not isinstance(cast(Any, self.flowable), Stream):
            raise WrongType(f"a pipeline begins with a stream, not {describe(self.flowable)}")
        if not isinstance(cast(Any, self.sinks), tuple):
            raise WrongType("Pipeline(stream, sinks) takes a tuple: write stream.to(sink, ...)")
        if not self.sinks:
            raise BuildError("to() needs at least one sink, such as write_jsonl() or collect(into)")
        for sink in self.sinks:
            if not isinstance(cast(Any, sink), Sink):
                raise BuildError(f"to() takes sinks, {_but_given(sink)}")
            if isinstance(sink, LettersOnly):
                name = sink.info.name
                raise BuildError(
                    f"{name}(path) takes failed events, not results: give it to the stage that may "
                    f"fail, as on_error=route({name}(path)), and end in a sink for results"
                )
        for sink in self.sinks:
            refuse_missing(sink.info, self.flowable.values)
            sink.check_beside([other for other in self.sinks if other is not sink])
            sink.check_above([stream.info for stream in self.flowable.chain()])
        self.flowable.check_readable()
        if self.flowable.groups:
            raise BuildError("a stream of groups cannot end in a sink: insert spread()")
        hint_if_unused(Pipeline)

    def start(
        self,
        *,
        drain_deadline: float = 20.0,
        limit: tuple[int, int] | int | None = None,
        engine: Engine | None = None,
        workers: int | Literal["auto"] | WorkerFactory | None = None,
    ) -> Running:
        """Start a run on the running loop: `async with pipeline.start() as running`.

        Leaving the block waits until the pipeline has ended, and raises its error; leaving it by an
        exception cancels it. `drain_deadline` is the seconds that in-flight work gets after an
        error, and for which a sink of dead letters may accept nothing at the end; `limit`, a number
        or a pair (floor, ceiling), replaces the limits of all working stages, from the first event
        on; `engine` runs it on many machines. With `workers`, a number or "auto", the handler and
        the stages around it run in that many processes, as described for `run`. They are fresh
        interpreters, because a process with a loop cannot be forked: each imports the module that
        has the pipeline at its top level, so code that must run only once belongs under `if
        __name__ == "__main__":`. The loop's signal handlers and logging are left alone. Raises
        BuildError if the pipeline would write into the file it reads, or two of its outputs into
        one file, unless both append, and if other processes cannot find it.
        """
        check_not_loading()
        self.check_files()
        chain = self.flowable.chain()
        if engine is not None:
            infos = (stream.info for stream in chain)
            refuse_engine(infos, moves_states=engine.moves_states)
        overrides = Overrides() if engine is None else engine.overrides(chain[0])
        if workers is not None:
            from penstock.streams.workers.parent import in_workers
            from penstock.streams.workers.supervisor import WorkerFactory

            if engine is not None:
                raise BuildError("an engine has workers of its own: leave workers= out")
            if not isinstance(workers, WorkerFactory):
                workers = _spawned(self, workers, "in a running loop")
            overrides = in_workers(chain, self.sinks, workers)
        streams = self.standard_streams()
        return Running(self.flowable, self.sinks, drain_deadline, limit, overrides, streams)

    def run(
        self,
        *,
        drain_deadline: float = 20.0,
        workers: int | Literal["auto"] | None = None,
        report_page: str | os.PathLike[str] | None = None,
        progress: bool = False,
    ) -> PipelineRun:
        """`await pipeline.run()`: run to the end of the input.

        Raises the error that stopped it, else returns the report; the arguments are those of
        `start`, `report_page` is the path of `Running.report_page`, and `progress=True` is
        `Running.show_progress`. If its task is cancelled, as by the interrupt of a cell in a
        notebook, the report is a note on the CancelledError. Like a coroutine, it begins
        when it is awaited or made a task, and warns if it never was.
        """
        check_not_loading()

        async def whole_run() -> Report:
            running = self.start(drain_deadline=drain_deadline, workers=workers)
            return await _end_of(running, report_page, progress=progress)

        return PipelineRun(self, whole_run())

    async def __aenter__(self) -> NoReturn:
        raise WrongType(
            "a pipeline is started first: write `async with pipeline.start() as running`"
        )

    async def __aexit__(self, *_: object) -> None: ...

    def __aiter__(self) -> NoReturn:
        raise WrongType(
            "a pipeline ends in its sinks. To read values in a loop leave out .to(...): "
            "`async for value in stream`"
        )

    def check_files(self) -> None:
        """Raise BuildError if an output would destroy an input or another output."""
        stages = list(all_stages(self.describe()))
        sources = [stage for stage in stages if stage.is_source]
        written = _files_of_letters(stages)
        for sink in stages[-len(self.sinks) :]:
            if sink.files.empties and any(source.delivery.continues for source in sources):
                refuse_to_empty(sink.files.path)
            if sink.files.path is not None:
                written.append(Written(str(sink), sink.files.path, sink.files.appends))
        for source in sources:
            for output in written:
                refuse_same_file(source.files.path, output.path)
        refuse_overwriting(written)

    def standard_streams(self) -> set[int]:
        """The descriptors, of 0 and 1, that it reads and writes."""
        return standard_streams_of(all_stages(self.describe()))

    def describe(self, limit: tuple[int, int] | int | None = None) -> list[StageInfo]:
        """All stages with their bounds, source first, sinks last; nothing is run.

        The sum of what they hold is an upper bound of the events that are unfinished at once, in a
        run started with this `limit`, unless `retune` gives a stage another one.
        """
        note_use()
        return description(self.flowable, self.sinks, limit)

    def definition(self) -> dict[str, Any]:
        """What it is made of, as plain data: `source`, `operators`, `sinks`, `shared` things, and
        under `stages` what `describe` says.

        Functions are in it as `module:name`; one without a name, such as a lambda, is shown by its
        file and line. Options that have their defaults are left out. Passwords of URLs are too.
        """
        from penstock.streams.definitions.definition import VERSION, stages_of

        stages = stages_of(self.describe())
        return {"penstock": VERSION, **self._defined().data, "stages": stages}

    @classmethod
    def from_definition(cls, definition: Mapping[str, Any]) -> Pipeline:
        """The pipeline of a definition, whose functions are imported by their names.

        `stages` are not read. Raises BadDefinition, which says where it is wrong.
        """
        from penstock.streams.definitions.building import built

        stream, sinks = built(dict(definition))
        return cls(stream, tuple(sinks))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Pipeline:
        """The pipeline of a file in TOML, YAML or JSON, by the end of its name.

        Functions are imported by their names. Raises BadDefinition, which names the line, and
        MissingExtra for YAML without its package.
        """
        from penstock.streams.definitions.files import read_file

        stream, sinks = read_file(os.fspath(path))
        return cls(stream, tuple(sinks))

    def to_file(self, path: str | os.PathLike[str]) -> None:
        """Write the definition to a file in TOML, YAML or JSON, by the end of its name.

        Raises NotNamed for a lambda, a closure, or anything else that a file cannot name, and for a
        URL with a password; MissingExtra where the package for the form is not installed.
        """
        from penstock.streams.definitions.definition import VERSION
        from penstock.streams.definitions.files import write_file

        write_file(self._defined(), VERSION, os.fspath(path))

    def as_text(self, form: Literal["toml", "yaml", "json"]) -> str:
        """The definition as the text of a file; see `to_file`."""
        from penstock.streams.definitions.definition import VERSION
        from penstock.streams.definitions.files import as_text

        return as_text(self._defined(), VERSION, form)

    def _defined(self) -> Definition:
        from penstock.streams.definitions.definition import defined

        note_use()
        return defined(self.flowable, self.sinks)

    def __eq__(self, other: object) -> bool:
        """Whether both are made alike, of the same named functions; what has no name, such as a
        lambda, is equal to itself only."""
        if not isinstance(other, Pipeline):
            return NotImplemented
        return self is other or self._defined().is_like(other._defined())

    def __hash__(self) -> int:
        # As many as are alike have the same stages.
        return hash(tuple(stage.name for stage in self.describe()))

    def __repr__(self) -> str:
        return f"<Pipeline {' > '.join(stage.name for stage in self.describe())}>"

    def _repr_svg_(self) -> str:
        """The picture of its stages, as an SVG document, which notebooks show."""
        from penstock.streams.pictures.pipeline import as_svg

        stages, sinks = self.describe(), len(self.sinks)
        return as_svg(stages[:-sinks], stages[-sinks:], repr(self))


def _but_given(other: Any) -> str:
    """A message that names what was given instead of a sink, and what to write."""
    module = getattr(other, "__module__", "") or ""
    if Sink in getattr(other, "__mro__", ()) or module.startswith("penstock.sinks."):
        name = getattr(other, "__name__", "")
        return f"and {name} makes one: write {name}(...)"
    if callable(other) and (is_ours(module) or module.startswith("reactivex.")):
        return "and an operator goes into pipe(): write stream.pipe(operator).to(write_jsonl())"
    return f"not {describe(other)}; wrap a function: for_each(function)"


def _files_of_letters(stages: list[StageInfo]) -> list[Written]:
    """The files of the sinks of dead letters; one shared by several stages is opened once."""
    routed = {
        id(sink): (sink, f"'{sink.name}' of {stage}") for stage in stages for sink in stage.routed
    }
    return [
        Written(name, sink.files.path, sink.files.appends)
        for sink, name in routed.values()
        if sink.files.path is not None
    ]


class PipelineRun(Coroutine[Any, Any, Report]):
    """The result of `Pipeline.run()`, used like a coroutine: awaited once."""

    def __init__(self, pipeline: Pipeline, whole_run: Coroutine[Any, Any, Report]) -> None:
        # If it is never awaited, `__del__` says so.
        note_use()
        self._pipeline = pipeline
        # Its real type, which mypy cannot express.
        self._coroutine: CoroutineType[Any, Any, Report] = whole_run  # type: ignore[assignment]
        self._is_used = False

    def __await__(self) -> Generator[Any, Any, Report]:
        self._is_used = True
        return self._coroutine.__await__()

    def send(self, value: Any, /) -> Any:
        self._is_used = True
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        self._is_used = True
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._is_used = True
        self._coroutine.close()

    # These show where a task waits, in `Task.get_stack` and in the leak check of
    # `penstock.streams.testing`.

    @property
    def cr_frame(self) -> Any:
        return self._coroutine.cr_frame

    @property
    def cr_await(self) -> Any:
        return self._coroutine.cr_await

    def __del__(self) -> None:
        if self._is_used:
            return
        # Python's own warning would name a coroutine that the user has never seen.
        self._coroutine.close()
        # At the end of the process standard error may be gone.
        if sys.stderr is not None:
            print(
                f"penstock: {self._pipeline} was never run: pipeline.run() only makes a run, "
                "which must be awaited. Write `run(pipeline)` in a script, "
                "`await pipeline.run()` in a loop.",
                file=sys.stderr,
            )


def run(
    pipeline: Pipeline,
    *,
    drain_deadline: float = 20.0,
    workers: int | Literal["auto"] | None = None,
    report_page: str | os.PathLike[str] | None = None,
) -> Report:
    """Run a pipeline from a script: on uvloop where it exists, until it has ended.

    The first SIGINT or SIGTERM drains within `drain_deadline` seconds, the second cancels. SIGHUP
    drains too. Signals that the process was started to ignore stay ignored. Returns the report;
    raises the error that stopped the pipeline. In async code use `await pipeline.run()` instead.

    With `workers`, that many processes run the handler and the stages around it that keep nothing
    from one event to the next, and open the sinks with `in_workers`; everything else stays in this
    one. "auto": as many as there are cores. They are forked, so the handler may be any function. In
    a process that has threads, or on a system without fork, they are started as for
    `Pipeline.start`. `report_page` is the path of `Running.report_page`.
    """

    check_not_loading()
    if isinstance(pipeline, Stream):
        raise BuildError(
            f"run(pipeline) takes a pipeline, not the stream {pipeline!r}: end it in a sink, as in "
            "run(stream.to(write_jsonl()))"
        )
    if not isinstance(pipeline, Pipeline):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BuildError(f"run(pipeline) takes a pipeline, not {describe(pipeline)}")

    async def main() -> Report:
        running = pipeline.start(drain_deadline=drain_deadline, workers=crew)
        with drain_on_signals(running, drain_deadline):
            return await _end_of(running, report_page)

    if running_loop() is not None:
        raise BuildError("run(pipeline) is for scripts; in async code use `await pipeline.run()`")
    with (
        in_processes_of(pipeline, workers) as crew,
        asyncio.Runner(loop_factory=new_event_loop) as runner,
    ):
        return runner.run(main())


async def _end_of(
    running: Running, report_page: str | os.PathLike[str] | None, *, progress: bool = False
) -> Report:
    try:
        async with running:
            if report_page is not None:
                running.report_page(report_page)
            if progress:
                running.show_progress()
            return await running.wait()
    except asyncio.CancelledError as error:
        error.add_note(str(running.report()))
        raise


@contextmanager
def in_processes_of(
    pipeline: Pipeline, workers: int | Literal["auto"] | None
) -> Generator[WorkerFactory | None]:
    """A factory of the worker processes, for a run that begins inside; None without workers.

    The standard streams of the pipeline are its own inside, and workers do not have them. Raises
    BuildError for a wrong number, for a pipeline with nothing that they could do, and if
    this process cannot be forked and others cannot find the pipeline.
    """
    with taken(pipeline.standard_streams()):
        if workers is None:
            yield None
            return
        number = _number(workers)
        from penstock.streams.workers.placement import section_of
        from penstock.streams.workers.processes.forked import Processes, unforkable

        section = section_of(pipeline.flowable.chain(), pipeline.sinks)
        where = unforkable()
        if where is not None:
            yield _spawned(pipeline, workers, where)
            return
        with Processes(section, number, new_event_loop) as crew:
            yield crew


def _spawned(pipeline: Pipeline, workers: int | Literal["auto"], where: str) -> WorkerFactory:
    """A factory of workers where this process cannot be forked; `where` says why, in words."""
    number = _number(workers)
    from penstock.streams.workers.processes.spawned import Spawned

    return Spawned(pipeline, number, new_event_loop, where)


def _number(workers: int | Literal["auto"]) -> int:
    if workers != "auto" and not is_count(workers):
        raise BuildError(f'workers={workers!r}: give a number of at least 1, or "auto"')
    return cores() if workers == "auto" else workers


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A uvloop if it is installed, else the standard loop."""
    try:
        import uvloop
    except ImportError:  # It does not exist on Windows.
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
