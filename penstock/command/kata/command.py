"""`penstock kata`: the kata at full load, and one table of what was measured."""

from __future__ import annotations

import argparse
import asyncio
import os
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

from penstock.command.explain import explain, users_line
from penstock.command.interrupt import Interrupted
from penstock.command.kata.load.events import FIRST_CLIENT, Load
from penstock.command.kata.load.pause import paused
from penstock.command.kata.load.work import Work
from penstock.command.kata.observe import Measured, Observer
from penstock.command.kata.report.each_second import each_second
from penstock.command.kata.report.table import table
from penstock.command.kata.report.verdict import broken_promises
from penstock.command.kata.solutions.consumer import Candidate, load_consumer
from penstock.command.kata.solutions.cpu import cpu_name, cpu_rate, run_cpu
from penstock.command.kata.solutions.reference import REFERENCE, run_reference
from penstock.command.kata.solutions.variants import POOLS, VARIANTS, run_variant
from penstock.command.kata.trial import Trial
from penstock.command.on_signal import on_signal
from penstock.command.output import flush, mention, put, say
from penstock.streams.base.errors import BuildError
from penstock.streams.pipelines.pipeline import cores, new_event_loop
from penstock.streams.pipelines.running import Running

__all__ = ["call"]


def call(options: argparse.Namespace, for_the_file: list[str]) -> int:
    """Run the variants asked for and the reference pipeline, and print the table.

    With a consumer to try, that is run instead of the reference. Returns the exit status: 1 if the
    last one broke a promise of the kata, 128 and the number of a signal that ended it, with what
    was measured until then. Raises BuildError for a value out of range, an unknown variant, or a
    file without a consumer.
    """
    variants = _variants(options)
    candidate = None if options.consumer is None else load_consumer(options.consumer, for_the_file)
    try:
        load = Load(
            _rate(options), options.clients, options.duplicates, options.seconds, options.seed
        )
        work = Work(options.handler_ms / 1000, options.sigma_ms / 1000, options.slow_client or 1)
    except ValueError as error:
        raise BuildError(f"kata: {error}") from error
    _check_length(load, options)
    _check_files(options)
    runs: list[Measured] = []
    interrupted = _run_variants(variants, load, work, options, runs)
    broken: list[str] | None = None
    if interrupted is None and candidate is not None:
        interrupted, broken = _run_trial(candidate, load, work, options, runs)
    elif interrupted is None and options.cpu_ms is not None:
        interrupted = _run_cpu(load, options, runs)
    elif interrupted is None:
        interrupted = _run_reference(load, work, options, runs)
    _draw(runs, _heading(load, work, options.cpu_ms), options)
    printed = put(f"{_heading(load, work, options.cpu_ms)}\n\n{table(runs)}\n")
    if interrupted is not None:
        mention(f"{interrupted} before the load's end")
        status = interrupted.exit_status
    elif broken is not None:
        status = printed or put(_verdict(runs[-1].variant, broken)) or int(bool(broken))
    else:
        status = printed or int(_broke_a_promise(runs[-1]))
    if candidate is not None and options.alone and _threads_left():
        # They may be at work for ever, and only the consumer could end them.
        flush()
        os._exit(status)
    return status


def _rate(options: argparse.Namespace) -> float:
    """The events a second: the article's thousand, or more than one process can do."""
    rate: float | None = options.rate
    if options.cpu_ms is None:
        if options.workers is not None:
            raise BuildError(
                "kata: --workers divides work that needs the processor: give --cpu-ms too"
            )
        return 1000.0 if rate is None else rate
    if options.consumer is not None or options.variant or options.slow_client is not None:
        raise BuildError(
            "kata: --cpu-ms is for penstock's own pipeline: leave --variant, --try and "
            "--slow-client out"
        )
    if not 0 < options.cpu_ms <= 1000:
        raise BuildError(f"kata: --cpu-ms {options.cpu_ms:g} is not between 0 and 1,000")
    return cpu_rate(options.cpu_ms / 1000) if rate is None else rate


def _check_length(load: Load, options: argparse.Namespace) -> None:
    """Raise BuildError for a load of which nothing would be measured."""
    if not len(load):
        raise BuildError(
            f"kata: {load.rate:g} events per second for {load.seconds:g} s make no event: give "
            "more --seconds or a higher --rate"
        )
    if options.pause is not None and options.pause > load.seconds:
        raise BuildError(
            f"kata: a pause of {options.pause:g} s does not fit into a run of {load.seconds:g} s: "
            "give more --seconds or a shorter --pause"
        )


def _check_files(options: argparse.Namespace) -> None:
    """Raise BuildError if what was measured could not be written."""
    from penstock.streams.telemetry.report.writing import check_path

    if options.plot is not None and not options.plot.endswith(".svg"):
        raise BuildError(f"kata: --plot {options.plot}: the name must end in .svg")
    for path in (options.report_page, options.plot):
        if path is not None:
            check_path(path)


def _draw(runs: list[Measured], heading: str, options: argparse.Namespace) -> None:
    """Write what was measured as a page and as a picture, as far as that is asked for."""
    if options.report_page is None and options.plot is None:
        return
    from penstock.command.kata.report.page import page, picture
    from penstock.streams.telemetry.report.writing import write_page

    drawn: list[tuple[str | None, Callable[[], str]]] = [
        (options.report_page, partial(page, runs, heading)),
        (options.plot, partial(picture, runs)),
    ]
    for path, draw in drawn:
        if path is None:
            continue
        try:
            write_page(draw(), path)
        except OSError as error:
            mention(f"cannot write {path}: {error.strerror}")


def _observer(options: argparse.Namespace) -> Observer:
    return Observer(slow_client=None if options.slow_client is None else FIRST_CLIENT)


@contextmanager
def _shown(name: str, observer: Observer, options: argparse.Namespace) -> Generator[None]:
    """Say a line each second, and pause at half of the time if that is asked for."""
    pause = paused(options.seconds / 2, options.pause) if options.pause else nullcontext()
    with each_second(name, observer, say), pause:
        yield


def _run_variants(
    names: list[str],
    load: Load,
    work: Work,
    options: argparse.Namespace,
    runs: list[Measured],
) -> Interrupted | None:
    for name in names:
        observer = _observer(options)
        try:
            with _shown(name, observer, options):
                run = run_variant(name, load, work.block, pool=options.pool, observer=observer)
            runs.append(run)
        except Interrupted as interrupted:
            runs.append(observer.measured(name))
            return interrupted
    return None


def _watching(
    name: str, observer: Observer, options: argparse.Namespace, interrupts: list[Interrupted]
) -> Callable[[Running], AbstractContextManager[None]]:
    """Contexts in which a run is shown, and cancelled at a signal, which goes to `interrupts`."""

    @contextmanager
    def watch(running: Running) -> Generator[None]:
        def stop(interrupted: Interrupted) -> None:
            interrupts.append(interrupted)
            running.cancel()

        with on_signal(stop), _shown(name, observer, options):
            yield

    return watch


def _run_reference(
    load: Load, work: Work, options: argparse.Namespace, runs: list[Measured]
) -> Interrupted | None:
    interrupts: list[Interrupted] = []
    observer = _observer(options)

    watch = _watching(REFERENCE, observer, options, interrupts)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runs.append(runner.run(run_reference(load, work.pause, watch=watch, observer=observer)))
    return interrupts[0] if interrupts else None


def _run_cpu(load: Load, options: argparse.Namespace, runs: list[Measured]) -> Interrupted | None:
    """Run the kata that needs the processor in this process, and with workers if asked for."""
    interrupts: list[Interrupted] = []
    workers = cores() if options.workers == "auto" else options.workers
    for number in dict.fromkeys((None, workers)):
        observer = _observer(options)
        watch = _watching(cpu_name(number), observer, options, interrupts)
        runs.append(run_cpu(load, options.cpu_ms / 1000, number, observer, watch))
        if interrupts:
            return interrupts[0]
    return None


def _run_trial(
    candidate: Candidate,
    load: Load,
    work: Work,
    options: argparse.Namespace,
    runs: list[Measured],
) -> tuple[Interrupted | None, list[str]]:
    """Try the consumer; returns the signal that ended it, and what was wrong with it."""
    observer = _observer(options)
    trial = Trial(candidate, load, work, observer)
    try:
        with _shown(candidate.name, observer, options):
            trial.run()
    except Interrupted as interrupted:
        runs.append(observer.measured(candidate.name))
        return interrupted, []
    if trial.unfit is not None:
        line = users_line(trial.unfit) or candidate.name
        raise BuildError(f"{line}: {candidate.name} cannot be made\n{explain(trial.unfit)}")
    runs.append(observer.measured(candidate.name))
    return None, broken_promises(runs[-1], trial)


def _verdict(name: str, broken: list[str]) -> str:
    if not broken:
        return f"\n{name} keeps every promise of the kata.\n"
    return "\n".join([f"\n{name} breaks promises of the kata:", *broken, ""])


def _threads_left() -> bool:
    # Those of a pool that the consumer has made are daemons, as its own thread is, and yet Python
    # waits for them at the end.
    return threading.active_count() > 1


def _heading(load: Load, work: Work, cpu_ms: float | None) -> str:
    if cpu_ms is not None:
        return (
            f"{load.rate:,g} events/s for {load.seconds:g} s, {load.clients:,} clients, "
            f"{100 * load.duplicates:g} % duplicates, {cpu_ms:g} ms of processor time each.\n"
            "Latency is from creation to start of processing, in milliseconds."
        )
    slow = "" if work.slow == 1 else f"; client {FIRST_CLIENT} takes {work.slow:g} times as long"
    return (
        f"{load.rate:,g} events/s for {load.seconds:g} s, {load.clients:,} clients, "
        f"{100 * load.duplicates:g} % duplicates, {work.mean * 1000:g} ms of work each "
        f"(sigma {work.sigma * 1000:g} ms){slow}.\n"
        "Latency is from creation to start of processing, in milliseconds."
    )


def _broke_a_promise(run: Measured) -> bool:
    return bool(run.duplicates_processed or run.overlapped or run.overtaken or run.lost)


def _variants(options: argparse.Namespace) -> list[str]:
    names: list[str] = options.variant or []
    names = list(VARIANTS) if "all" in names else names
    for name in names:
        if name not in (*VARIANTS, REFERENCE):
            known = ", ".join((*VARIANTS, REFERENCE))
            raise BuildError(f"kata: there is no variant {name!r}; there are {known}, all")
    # It is run in any case, after the others.
    names = [name for name in names if name != REFERENCE]
    if options.pool is not None and not set(names) & set(POOLS):
        raise BuildError(
            "--pool: no variant with a pool of threads is run; add --variant with one of "
            f"{', '.join(POOLS)}"
        )
    return names
