"""What a live page shows, as a document for JSON: made of the statistics, and sent as differences.

A difference is a merge patch (RFC 7396): what has changed, with null for what has gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from penstock.streams.base.compiled import library
from penstock.streams.base.errors import describe, message_of, printable
from penstock.streams.failures.policy import DeadLetter
from penstock.streams.pictures.lanes import Layout, Place, layout
from penstock.streams.pictures.pipeline import drawn, reads_text
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.recording.recorder import LATENCIES, Example, Recorder, Sample, example_of
from penstock.streams.telemetry.unread import UNREAD, unread

if TYPE_CHECKING:
    from penstock.streams.running.handle import Handle

__all__ = ["Document", "difference"]

_Object = dict[str, Any]

# Characters of a name, a detail, a key or an error that are sent.
_SHOWN = 300

# Of the value of the last dead letter.
_VALUE = 2_000

# Of a latency that are sent.
_PERCENTILES = ("count", "median", "p99", "p999", "max")

# Numbers of a stage that the page does not need: lists that may be long, and what has another
# name there.
_LEFT_OUT = frozenset({"returned_tokens", "latency", "by_worker", "hottest", *UNREAD})


class Document:
    """The document about one run. Values of events are in it only with `show_values`."""

    def __init__(
        self, running: Handle, recorder: Recorder, title: str | None, show_values: bool
    ) -> None:
        self._running = running
        self._title = title
        self._recorder = recorder
        self._show_values = show_values
        self.fleet: dict[str, Any] | None = None
        """All workers of a pipeline on many machines, and its partitions."""

    def fixed(self) -> dict[str, Any]:
        """The part that never changes, and the samples so far."""
        stages = self._running.describe()
        laid = layout([stage for stage in stages if stage.number <= self._recorder.last])
        return {
            "library": library(),
            "title": _short(self._title or " > ".join(stage.name for stage in stages)),
            "stages": list(self._stages(stages, laid)),
            "arrows": [
                [one.above, one.below, one.lane, one.leaves, one.comes, list(map(list, one.bends))]
                for one in laid.arrows
            ],
            "lanes": laid.lanes,
            "tracks": laid.tracks,
            "latencies": LATENCIES,
            "values": self._show_values,
            "samples": [self.sample(sample) for sample in self._recorder.samples],
        }

    def _stages(self, stages: list[StageInfo], laid: Layout) -> Iterator[dict[str, Any]]:
        last = self._recorder.last
        found = list(drawn(stages, len([stage for stage in stages if stage.number > last])))
        before = 0
        for at, (stage, above) in enumerate(found):
            readers = [reader.number for reader, read in found if stage.number in read]
            is_sink = stage.number > last
            # Whether the box of the only reader, or the row of sinks, is below it.
            is_next = stage.number >= last or readers == [found[at + 1][0].number]
            yield {
                **_described(stage, is_sink=is_sink),
                **({} if is_sink else _placed(laid.places[stage.number])),
                "reads": "" if is_sink else reads_text(above, before),
                "readers": [] if is_next else readers,
            }
            before = stage.number

    def now(self) -> dict[str, Any]:
        """The part that changes: the statistics, with the stages by their numbers."""
        numbers = self._running.statistics()
        if (latency := numbers["latency"]) is not None:
            numbers["latency"] = _percentiles(latency)
        stages = numbers["stages"]
        numbers["stages"] = {
            str(stage["stage"]): self._shown(stage) for stage in stages if "read_by" not in stage
        }
        for stage in stages:
            reader = numbers["stages"].get(str(stage.get("read_by")))
            if reader is not None:
                # Streams that were not known before, whose stages have no boxes of their own.
                reader.setdefault("inputs", []).append(self._shown(stage))
        numbers["examples"] = {
            kind: self._example(one) for kind, one in self._recorder.examples.items()
        }
        if self.fleet is not None:
            numbers["fleet"] = self.fleet
        letter = self._recorder.letter
        if letter is not None:
            numbers["letter"] = self._letter(letter)
        if numbers["state"] == "closed":
            report = self._running.report()
            numbers["outcome"] = report.outcome
            if (error := report.error) is not None:
                kind = type(error).__name__
                numbers["ended_by"] = {"error": kind, **self._example(example_of(error))}
        return numbers

    def _example(self, one: Example) -> dict[str, str]:
        return {"where": one.where, "text": _short(one.text) if self._show_values else ""}

    def _letter(self, letter: DeadLetter) -> dict[str, Any]:
        shown = {
            "stage": _short(letter.stage),
            "error": type(letter.error).__name__,
            "attempts": letter.attempts,
            "at": self._recorder.seconds_at(letter.failed),
        }
        if self._show_values:
            shown |= {
                "text": _short(message_of(letter.error)),
                "value": printable(describe(letter.value, _VALUE)),
            }
        return shown

    def _shown(self, stage: dict[str, Any]) -> dict[str, Any]:
        shown = {name: number for name, number in stage.items() if name not in _LEFT_OUT}
        if (left := unread(stage)) is not None:
            shown["unread"] = left
        if "hottest_keys" in stage:
            shown["hottest_keys"] = [
                {**key, "key": _named(key["key"]) if self._show_values else None}
                for key in stage["hottest_keys"]
            ]
        if stage.get("of_stage") is not None and "latency" in stage:
            shown["latency"] = _percentiles(stage["latency"])
        if "by_key" in stage:
            shown["by_key"] = [
                {**one, "key": _named(one["key"]) if self._show_values else None}
                for one in stage["by_key"]
            ]
        if (awaited := stage.get("waits_for")) is not None:
            shown["waits_for"] = {"age": awaited["age"]}
            if self._show_values:
                shown["waits_for"]["key"] = _named(awaited["key"])
        if "by_worker" in stage:
            shown["by_worker"] = {str(at): one for at, one in enumerate(stage["by_worker"], 1)}
        return shown

    @staticmethod
    def sample(sample: Sample) -> list[Any]:
        """A sample as the page reads it."""
        return list(sample)


def _percentiles(latency: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What is sent of the summaries of a latency."""
    return {name: {of: summary[of] for of in _PERCENTILES} for name, summary in latency.items()}


def _described(stage: StageInfo, *, is_sink: bool) -> dict[str, Any]:
    kind = "source" if stage.is_source else "sink" if is_sink else "stage"
    return {
        "stage": stage.number,
        "name": _short(stage.name),
        "detail": _short(stage.detail),
        "note": _short(stage.note),
        # What waits is counted in the stage's own events, each of which may be of many others.
        "holds": stage.own_bound,
        "kind": kind,
        "routes": [_short(sink.detail or sink.name) for sink in stage.routed],
    }


def _placed(place: Place) -> dict[str, Any]:
    return {"row": place.row, "lane": place.lane}


def _named(key: Any) -> str:
    return _short(key if isinstance(key, str) else describe(key))


def _short(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The merge patch that makes `new` of `old`; empty if they are equal."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        if name not in old:
            patch[name] = value
            continue
        before = old[name]
        if value == before:
            continue
        if isinstance(value, dict) and isinstance(before, dict):
            patch[name] = difference(cast(_Object, before), cast(_Object, value))
        else:
            patch[name] = value
    return patch
