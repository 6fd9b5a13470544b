"""The metrics of one run, as families of samples for prometheus-client."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from penstock.streams.base.errors import describe, printable
from penstock.streams.diagnostics.histogram import LatencyHistogram
from penstock.streams.diagnostics.key_latencies import PARTS
from penstock.streams.recording.recorder import LATENCIES, Recorder
from penstock.streams.telemetry.native import add_native
from penstock.streams.telemetry.unread import unread

__all__ = ["Families"]

# Characters of a key that are shown.
_KEY = 300


class Families:
    """The families of a run, from its statistics. Needs prometheus-client.

    `show_values`: keys are named, which are values of events. `native`: histograms have the form
    that OpenMetrics 2.0 can write.
    """

    def __init__(
        self,
        numbers: dict[str, Any],
        recorder: Recorder,
        *,
        show_values: bool = False,
        native: bool = False,
    ) -> None:
        self._show_values = show_values
        self._add_histogram = add_native if native else _add_buckets
        self._numbers = numbers
        self._recorder = recorder

    def collect(self) -> Iterator[Any]:
        """The families, each with its samples."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
            StateSetMetricFamily,
        )

        numbers = self._numbers
        arrived = CounterMetricFamily("penstock_events_in", "Events that the sources have emitted")
        arrived.add_metric([], numbers["in"])
        yield arrived
        events = CounterMetricFamily(
            "penstock_events", "Events that have ended, by how", labels=["outcome"]
        )
        for outcome in ("finished", "failed", "returned"):
            events.add_metric([outcome], numbers[outcome])
        events.add_metric(["dropped"], sum(numbers["dropped"].values()))
        yield events
        drops = CounterMetricFamily(
            "penstock_events_dropped", "Events that were dropped on purpose", labels=["cause"]
        )
        for cause, count in numbers["dropped"].items():
            drops.add_metric([cause], count)
        yield drops
        errors = CounterMetricFamily(
            "penstock_errors", "Events that failed in a stage that goes on", labels=["type"]
        )
        for kind, count in numbers["errors"].items():
            errors.add_metric([kind], count)
        yield errors
        bad = CounterMetricFamily("penstock_bad_lines", "Lines from which no event could be made")
        bad.add_metric([], numbers["bad_lines"])
        yield bad
        yield GaugeMetricFamily(
            "penstock_waiting", "Events that are in no call of a handler", numbers["waiting"]
        )
        yield GaugeMetricFamily(
            "penstock_in_flight", "Events in calls of handlers", numbers["in_flight"]
        )
        if numbers["groups"] is not None:
            yield GaugeMetricFamily(
                "penstock_groups", "Keys that have an event or a turn", numbers["groups"]
            )
        if numbers["progress"] is not None:
            yield GaugeMetricFamily(
                "penstock_progress_ratio",
                "The part of the input that is done with",
                numbers["progress"],
            )
        state = StateSetMetricFamily("penstock_state", "What the pipeline does")
        states = ("running", "paused", "draining", "closed")
        state.add_metric([], {name: name == numbers["state"] for name in states})
        yield state
        labels = ["stage", "name"]
        waiting, in_flight, limit = (
            GaugeMetricFamily(name, text, labels=labels)
            for name, text in (
                (
                    "penstock_stage_waiting",
                    "Events that wait in a stage, and its results that wait for the next one",
                ),
                ("penstock_stage_in_flight", "Calls under way in a stage"),
                ("penstock_limit", "Calls that a stage may have under way at once"),
            )
        )
        on_disk = GaugeMetricFamily(
            "penstock_stage_on_disk",
            "Events whose values are in the temporary file of a stage",
            labels=labels,
        )
        silent = GaugeMetricFamily(
            "penstock_silent_workers",
            "Worker processes of a stage that have events and do not answer",
            labels=labels,
        )
        pending = GaugeMetricFamily(
            "penstock_source_pending",
            "Rows or messages that a source has not read yet",
            labels=labels,
        )
        sent = CounterMetricFamily(
            "penstock_stage_sent", "Events that a stage has sent on", labels=labels
        )
        retries = CounterMetricFamily(
            "penstock_stage_retries",
            "Attempts after the first, of the events of a stage",
            labels=labels,
        )
        for name, family in (
            ("waiting", waiting),
            ("on_disk", on_disk),
            ("in_flight", in_flight),
            ("limit", limit),
            ("silent_workers", silent),
            ("pending", pending),
            ("sent", sent),
            ("retries", retries),
        ):
            for stage in numbers["stages"]:
                value: Any = unread(stage) if family is pending else stage.get(name)
                if family is waiting and value is not None:
                    value += stage.get("undelivered", 0)
                if family is silent and value is not None:
                    value = len(value)
                if value is not None:
                    family.add_metric([str(stage["stage"]), stage["name"]], value)
            yield family
        yield from self._of_states(labels)
        yield from self._of_times(labels)
        latency = HistogramMetricFamily(
            "penstock_latency",
            "Of measured events: waiting for the handler, service by it, and both",
            labels=["part"],
            unit="seconds",
        )
        for part, histogram in self._recorder.latencies().items():
            self._add_histogram(latency, {"part": part}, histogram)
        yield latency
        of_stages = HistogramMetricFamily(
            "penstock_stage_latency",
            "The same, of the events that leave a stage",
            labels=["stage", "part"],
            unit="seconds",
        )
        for stage, parts in self._recorder.latencies_of_stages().items():
            for part, histogram in parts.items():
                place = {"stage": str(stage), "part": part}
                self._add_histogram(of_stages, place, histogram)
        yield from (of_stages,) if of_stages.samples else ()
        yield from self._of_keys()
        yield from self._of_objectives()

    def _of_keys(self) -> Iterator[Any]:
        """The families of the hottest keys, and of all others together."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        stages = [stage for stage in self._numbers["stages"] if "by_key" in stage]
        for family, text, of_keys in (
            ("penstock_key", "the keys with the most events", True),
            ("penstock_other_keys", "all other keys together", False),
        ):
            labels = ["stage", "key"] if of_keys else ["stage"]
            events = CounterMetricFamily(f"{family}_events", f"Events of {text}", labels=labels)
            seconds = GaugeMetricFamily(
                f"{family}_latency_seconds",
                f"Latencies of {text}",
                labels=[*labels, "part", "quantile"],
            )
            for stage in stages:
                number = str(stage["stage"])
                shown = [([number], stage["other_keys"])]
                if of_keys:
                    # Keys are values of events.
                    keys = stage["by_key"] if self._show_values else ()
                    shown = [([number, _key(one["key"])], one) for one in keys]
                for name, one in shown:
                    events.add_metric(name, one["count"])
                    for part in PARTS:
                        seconds.add_metric([*name, part, "0.5"], one[part]["median"])
                        seconds.add_metric([*name, part, "0.99"], one[part]["p99"])
            yield from (events, seconds) if events.samples else ()

    def _of_objectives(self) -> Iterator[Any]:
        """The families of objectives."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        stages = [stage for stage in self._numbers["stages"] if "objective" in stage]
        if not stages:
            return
        labels = ["objective"]
        good, bad = (
            CounterMetricFamily(f"penstock_objective_{word}", text, labels=labels)
            for word, text in (
                ("good", "Events, or time slices, that were within the bound of an objective"),
                ("bad", "Those that were not"),
            )
        )
        share = GaugeMetricFamily(
            "penstock_objective_ratio", "The share that has to be good", labels=labels
        )
        burnt = GaugeMetricFamily(
            "penstock_objective_burn_rate",
            "The share that was bad in a window, divided by the share that may be",
            labels=["objective", "window"],
        )
        for stage in stages:
            name = [stage["objective"]]
            good.add_metric(name, stage["good"])
            bad.add_metric(name, stage["bad"])
            share.add_metric(name, stage["share"])
            for window, numbers in stage["windows"].items():
                if numbers["burn_rate"] is not None:
                    burnt.add_metric([*name, window], numbers["burn_rate"])
        yield from (good, bad, share, burnt)

    def _of_states(self, labels: list[str]) -> Iterator[Any]:
        """The families of stages with states."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        stages = [stage for stage in self._numbers["stages"] if "commits" in stage]
        keys, held, waits = (
            GaugeMetricFamily(name, text, labels=labels)
            for name, text in (
                ("penstock_state_keys", "Keys of a stage whose states are in memory"),
                (
                    "penstock_state_held",
                    "Events behind the stages of a store that are unfinished or not committed",
                ),
                (
                    "penstock_state_waits_seconds",
                    "Age of an event that the commit of others waits for; 0 if there is none",
                ),
            )
        )
        commits = CounterMetricFamily("penstock_commits", "Commits of a store", labels=labels)
        seconds = GaugeMetricFamily(
            "penstock_commit_seconds", "Time that commits took", labels=[*labels, "quantile"]
        )
        grown = GaugeMetricFamily(
            "penstock_state_grown_keys", "Keys more in a store than at the start", labels=labels
        )
        for stage in stages:
            name = [str(stage["stage"]), stage["name"]]
            if stage.get("grown") is not None:
                grown.add_metric(name, stage["grown"]["keys"])
            keys.add_metric(name, stage["keys"])
            held.add_metric(name, stage["held"])
            awaited = stage["waits_for"]
            waits.add_metric(name, 0 if awaited is None else awaited["age"])
            commits.add_metric(name, stage["commits"])
            seconds.add_metric([*name, "0.5"], stage["commit_p50"])
            seconds.add_metric([*name, "0.99"], stage["commit_p99"])
        yield from (keys, held, waits, commits, seconds) if stages else ()
        yield from (grown,) if grown.samples else ()

    def _of_times(self, labels: list[str]) -> Iterator[Any]:
        """The families of stages with event times."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        of_partitions = [*labels, "partition"]
        watermark, lag, idle = (
            GaugeMetricFamily(name, text, labels=of_partitions)
            for name, text in (
                (
                    "penstock_watermark_timestamp_seconds",
                    "Time up to which the events of a partition have come, since 1970",
                ),
                ("penstock_watermark_lag_seconds", "How far that is behind the clock"),
                ("penstock_partition_idle", "1 for a partition that is silent, else 0"),
            )
        )
        opened = GaugeMetricFamily(
            "penstock_open_windows", "Windows of a stage that are open", labels=labels
        )
        late = CounterMetricFamily(
            "penstock_late_events", "Events that came too late for a stage", labels=labels
        )
        for stage in self._numbers["stages"]:
            name = [str(stage["stage"]), stage["name"]]
            for one in stage.get("watermarks", ()):
                here = [*name, one["partition"]]
                if one["watermark"] is not None:
                    watermark.add_metric(here, one["watermark"])
                    lag.add_metric(here, one["lag"])
                idle.add_metric(here, one["idle"])
            if "open_windows" in stage:
                opened.add_metric(name, stage["open_windows"])
            if "late" in stage:
                late.add_metric(name, stage["late"])
        yield from (one for one in (watermark, lag, idle, opened, late) if one.samples)


def _add_buckets(family: Any, labels: dict[str, str], histogram: LatencyHistogram) -> None:
    """How many took at most so many seconds, and their sum."""
    counts = [0] * (len(LATENCIES) + 1)
    for microseconds, count in histogram.cells():
        counts[bisect_left(LATENCIES, microseconds / 1e6)] += count
    summary = histogram.snapshot()
    bounds = [*(repr(float(bound)) for bound in LATENCIES), "+Inf"]
    buckets = list(zip(bounds, accumulate(counts), strict=True))
    family.add_metric(list(labels.values()), buckets, summary.mean * summary.count)


def _key(key: Any) -> str:
    return printable(key if isinstance(key, str) else describe(key))[:_KEY]
