"""A collector of the metrics of runs, for a registry of prometheus-client."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from penstock.streams.telemetry.metrics import Families
from penstock.streams.telemetry.native import has_native

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from penstock.streams.recording.recorder import Recorder
    from penstock.streams.running.handle import Handle

__all__ = ["Collector"]

# Seconds that a scrape in another thread waits for the loop of a pipeline.
_PATIENCE = 5.0


class _Watched(NamedTuple):
    name: str
    running: Handle
    recorder: Recorder
    loop: AbstractEventLoop
    thread: int

    def numbers(self) -> dict[str, Any]:
        """The statistics, which are read on the loop, whatever thread asks for them."""
        running = self.running
        if get_ident() == self.thread or running.state == "closed":
            return running.statistics()
        found: Future[dict[str, Any]] = Future()
        try:
            self.loop.call_soon_threadsafe(lambda: _answer(found, running))
        except RuntimeError:
            # The loop has ended, and nothing changes any more.
            return running.statistics()
        return found.result(_PATIENCE)


def _answer(found: Future[dict[str, Any]], running: Handle) -> None:
    try:
        found.set_result(running.statistics())
    except BaseException as error:
        found.set_exception(error)


class Collector:
    """Collects the metrics of each run that was added, with its name as the label `pipeline`.

    A run that has ended keeps its last numbers until another one of its name is added. A registry
    may collect in any thread: the numbers are read on the loop of the run, for which it waits five
    seconds at most, and then raises TimeoutError. `show_values`: keys are named, which are values
    of events.
    """

    def __init__(self, *, show_values: bool) -> None:
        self._show_values = show_values
        self._runs: dict[str, _Watched] = {}

    def add(self, running: Handle, name: str) -> None:
        """Collect from this run, which has just been started; "" gives no label."""
        self._runs[name] = _Watched(name, running, running.record(), running.loop, get_ident())

    def describe(self) -> list[Any]:
        """Nothing: which metrics there are is known when there are runs."""
        return []

    def collect(self) -> list[Any]:
        """The families of all runs, each once, for `CollectorRegistry.register`."""
        return list(self._families(native=False))

    def _families(self, *, native: bool) -> Iterator[Any]:
        found: dict[str, Any] = {}
        for run in list(self._runs.values()):
            families = Families(
                run.numbers(), run.recorder, show_values=self._show_values, native=native
            )
            for family in families.collect():
                if run.name:
                    family.samples = [
                        sample._replace(labels={**sample.labels, "pipeline": run.name})
                        for sample in family.samples
                    ]
                known = found.setdefault(family.name, family)
                if known is not family:
                    known.samples += family.samples
        yield from found.values()

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """The text for a scraper that accepts these types, and its type.

        OpenMetrics 1.0; 2.0, with native histograms, if it is asked for and the client library has
        it.
        """
        # Without types.
        from prometheus_client.openmetrics import exposition as openmetrics

        write = cast(Any, openmetrics)
        if _accepts_2(accept) and has_native():
            text: bytes = write.generate_latest(
                _Given(list(self._families(native=True))), version="2.0.0"
            )
            return text, write.CONTENT_TYPE_LATEST_2_0
        text = write.generate_latest(_Given(self.collect()))
        return text, write.CONTENT_TYPE_LATEST


class _Given:
    """What `generate_latest` reads of a registry."""

    def __init__(self, families: list[Any]) -> None:
        self._families = families

    def collect(self) -> list[Any]:
        return self._families


def _accepts_2(accept: str) -> bool:
    """Whether a scraper accepts OpenMetrics 2.0 at all: it is preferred by those that know it."""
    for one in accept.split(","):
        kind, *options = (part.strip() for part in one.split(";"))
        if kind == "application/openmetrics-text" and "version=2.0.0" in options:
            return True
    return False
