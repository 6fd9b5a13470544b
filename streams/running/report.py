"""Statistics of a running pipeline: snapshots of its numbers, and the report at its end."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any, Literal, NamedTuple

from penstock.streams.base.compiled import library
from penstock.streams.base.errors import BuildError, MissingExtra, NotAllFinished, counted, describe
from penstock.streams.execution.call import IN_STATE
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.runtime.observing import Statistics
from penstock.streams.runtime.sources import Counts

__all__ = [
    "Outcome",
    "Report",
    "State",
    "done_with",
    "how_it_ended",
    "notes_on",
    "numbers_of",
    "snapshot",
]

Outcome = Literal[
    "completed", "drained", "incomplete", "output closed", "stopped", "overrun", "cancelled"
]
State = Literal["running", "paused", "draining"]

_HOW_IT_ENDED = {
    "completed": "completed",
    "drained": "drained on a signal",
    "incomplete": "ended with events unfinished",
    "output closed": "ended when the output was closed",
    "stopped": "stopped by an error",
    "overrun": "cancelled when the drain's deadline had passed",
    "cancelled": "cancelled",
}

# How many keys a stage has gained when the report says so. Chosen: some megabytes.
_MANY_KEYS = 10_000

# Keys whose latencies are shown; `by_key` has all that are known.
_MOST_KEYS = 5

# How many unfinished tokens are shown; `returned_tokens` has all.
_MOST_RANGES = 5


class Report(NamedTuple):
    """How a pipeline ended; before the end, its present state.

    `statistics` is the last snapshot; `error` is what stopped the pipeline. `str(report)` is the
    text that `penstock run` prints: a few lines, however long the pipeline ran.
    """

    outcome: Outcome | State
    statistics: dict[str, Any]
    error: BaseException | None = None

    @property
    def exit_status(self) -> int:
        """The exit status for a process.

        0 all finished; 1 stopped by an error; 2 an input or output cannot be opened, or the
        pipeline cannot be built after all; 3 completed or drained, but some lines or events
        were bad, skipped or routed; 4 drained on a signal, nothing lost; 5 cancelled, or drained
        or past the deadline with unfinished events, or not ended yet; 6 otherwise all finished, but
        a required objective was missed.
        """
        numbers = self.statistics
        if self.outcome == "stopped":
            return 2 if isinstance(self.error, BuildError | MissingExtra) else 1
        if self.outcome in ("incomplete", "overrun", "cancelled", "running", "paused", "draining"):
            return 5
        # A stage such as `catch` has gone on after an error of its stream, or the run is stopped.
        if numbers["failed"] > numbers.get("recovered", 0) or numbers["bad_lines"]:
            return 3
        # The results of a window or a timer are events of no source.
        if any(stage.get("skipped") or stage.get("routed") for stage in numbers["stages"]):
            return 3
        if any(stage.get("required") and stage["kept"] is False for stage in numbers["stages"]):
            return 6
        return 4 if self.outcome == "drained" else 0

    def raise_for_status(self) -> Report:
        """The report itself, unless something went wrong.

        That is with an `exit_status` other than 0 and 4: it raises the error that stopped the
        pipeline, else NotAllFinished, whose message is the text of the report.
        """
        status = self.exit_status
        if status in (0, 4):
            return self
        if self.error is not None:
            raise self.error
        raise NotAllFinished(f"exit status {status}: {self}")

    def __str__(self) -> str:
        return _as_text(self.outcome, self.statistics)

    def as_html(self) -> str:
        """The same text, with a bar before the end, if the end is in sight; notebooks show it."""
        from html import escape

        part = self.statistics.get("progress")
        is_shown = part is not None and self.outcome in ("running", "paused", "draining")
        bar = f'<progress value="{part:.3f}"></progress>' if is_shown else ""
        return f"{bar}<pre>{escape(str(self))}</pre>"

    def _repr_html_(self) -> str:
        return self.as_html()

    def __repr__(self) -> str:
        numbers = self.statistics
        counts = f"{numbers['in']:,} in, {numbers['finished']:,} finished"
        why = "" if self.error is None else f" by {type(self.error).__name__}"
        return f"<Report {self.outcome}{why}: {counts}>"


def snapshot(
    run: Run,
    sinks: Iterable[tuple[StageInfo, Statistics]],
    state: str,
    seconds: float,
    unmarked: list[int],
) -> dict[str, Any]:
    """The numbers of a running pipeline as a plain dict; `Running.statistics` lists them."""
    counts, inside = Counts(), Counts()
    run.nesting.count(counts, inside)
    emitted: list[float | None] = []
    again = 0
    for source in run.nesting.sources:
        numbers = source.statistics()
        emitted.append(numbers.get("emitted"))
        again += numbers["returned"] if source.gives_again else 0
    progress = _progress(emitted, counts, again)
    counts.join(inside)
    unfinished = counts.unfinished
    listed = sorted(run.nesting.stages, key=lambda stage: stage[0].number)
    stages = [numbers_of(*stage) for stage in listed]
    stages += [numbers_of(*sink) for sink in sinks]
    # Several children of one event may be in flight; the event counts once.
    in_flight = min(unfinished, sum(_all("in_flight", stages)) + run.nesting.in_flight_inside())
    groups = _all("groups", stages)
    latencies = [one["latency"] for one in stages if "latency" in one and one["of_stage"] is None]
    limits = _limits(stages)
    return {
        "state": state,
        "seconds": seconds,
        **counts.totals,
        "recovered": run.nesting.recovered,
        "recoveries": sum(run.errors.recoveries.values()),
        "dropped": counts.dropped,
        "progress": progress,
        "unfinished": unfinished,
        "waiting": unfinished - in_flight,
        "in_flight": in_flight,
        "bad_lines": run.errors.bad_lines,
        "limit": sum(limit for limit, _ in limits) if limits else None,
        "limit_reason": "; ".join(reason for _, reason in limits if reason),
        "groups": sum(groups) if groups else None,
        "closed_early": dict(run.errors.closed_early),
        "unmarked": list(unmarked),
        "errors": dict(run.errors.kinds),
        "latency": latencies[0] if latencies else None,
        "stages": stages,
    }


def _progress(emitted: list[float | None], counts: Counts, again: int) -> float | None:
    """The fraction of the input that is done, if events are equally long; `again` were returned and
    will come again."""
    parts = [part for part in emitted if part is not None]
    if not parts or len(parts) < len(emitted):
        return None
    came = counts.totals["in"] - again
    done = came - counts.unfinished - (counts.totals["returned"] - again)
    return min(parts) * (done / came if came else 1.0)


def numbers_of(info: StageInfo, statistics: Statistics) -> dict[str, Any]:
    """The numbers of one stage, an element of `stages` in a snapshot."""
    return {"stage": info.number, "name": info.name, "detail": info.detail, **statistics()}


def _limits(stages: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """Each limit with its reason; a limit that several stages share counts once."""
    found: dict[Any, tuple[int, str]] = {}
    for at, stage in enumerate(stages):
        if "limit" in stage:
            shared = stage.get("shared")
            name = ("stage", at) if shared is None else ("shared", shared["number"])
            found[name] = (stage["limit"], stage.get("limit_reason", ""))
    return list(found.values())


def _all(name: str, stages: list[dict[str, Any]]) -> list[Any]:
    return [stage[name] for stage in stages if name in stage]


# The text for people.


def _as_text(outcome: str, numbers: dict[str, Any]) -> str:
    """A few lines: how it ended and with which library, the events by outcome, troubles, the
    latencies."""
    seconds = numbers["seconds"]
    done = done_with(numbers)
    rate = f", {done / seconds:,.0f} events/s" if seconds > 0 else ""
    lines = [f"{library()}: {how_it_ended(outcome)} after {seconds:.1f} s{rate}"]
    counts = [f"{numbers['in']:,} in", f"{numbers['finished']:,} finished"]
    for cause, n in numbers["dropped"].items():
        # Their results come later, as other events.
        counts.append(f"{n:,} {cause}" if cause == IN_STATE else f"{n:,} dropped ({cause})")
    for name in ("failed", "returned", "waiting", "in_flight"):
        if numbers[name]:
            counts.append(f"{numbers[name]:,} {name.replace('_', ' ')}")
    lines.append("  events: " + ", ".join(counts))
    if workers := max((len(stage.get("by_worker", ())) for stage in numbers["stages"]), default=0):
        lines.append(f"  worked on by {workers:,} worker process{'es' * (workers != 1)}")
    if numbers["bad_lines"]:
        lines.append(f"  bad lines: {numbers['bad_lines']:,}")
    lines += [f"  {note}" for note in notes_on(numbers["stages"])]
    if unknown := sum(stage.get("created_unknown", 0) for stage in numbers["stages"]):
        lines.append(f"  events without a readable time of creation: {unknown:,}")
    if closed := numbers["closed_early"]:
        early = ", ".join(
            f"{counted(n, 'group')} closed early ({cause})" for cause, n in closed.items()
        )
        lines.append(f"  {early}: their results may be made of only a part of their events")
    unmarked = numbers.get("unmarked", ())
    lines += [
        f"  stage {stage['stage']} '{stage['name']}' does not record in the store which events "
        "have changed the states: those that the next run reads again change them again"
        for stage in numbers["stages"]
        if unmarked and stage["stage"] in unmarked
    ]
    if outcome in ("incomplete", "stopped", "overrun", "cancelled"):
        lines += _unfinished(numbers["stages"])
    lines += _troubles(numbers["stages"])
    lines += _recoveries_elsewhere(numbers)
    lines += _latencies("", numbers["latency"])
    for stage in numbers["stages"]:
        if stage.get("of_stage") is not None and "latency" in stage:
            lines += _latencies(f"stage {stage['of_stage']}, ", stage["latency"])
        if "by_key" in stage:
            lines += _by_key(stage)
    lines += _objectives(numbers["stages"])
    return "\n".join(lines)


_LOST = {
    "lost_windows": "open windows",
    "lost_rows": "rows that wait for partners",
    "lost_points": "points at which counts would have changed",
    "lost_events": "events that wait for rows",
}
"""What a stage has lost with the run, by the number."""


def notes_on(stages: list[dict[str, Any]]) -> list[str]:
    """What to know of stages for which events came too late, and whose kept states grow."""
    return [*_late(stages), *_lost(stages), *_grown(stages)]


def _late(stages: list[dict[str, Any]]) -> list[str]:
    """A line of the report for each stage for which events came too late."""
    return [
        f"late events: {stage['late']:,}, in stage {stage['stage']} '{stage['name']}': "
        + (
            "a longer keep= of its table has the rows of such events"
            if stage["name"] == "lookup"
            else "a greater lateness= waits for such events"
        )
        # Unless they were routed, or the stage does not skip what is late.
        + (", late=route(sink) keeps them" if stage.get("skipped", 0) >= stage["late"] else "")
        for stage in stages
        if stage.get("late")
    ]


def _lost(stages: list[dict[str, Any]]) -> list[str]:
    """A line of the report for each stage whose open windows, or rows or events that wait, have
    ended with the run."""
    return [
        f"{what}: {stage[number]:,}, in stage {stage['stage']} '{stage['name']}', "
        "have ended with the run: store= keeps them for the next"
        for number, what in _LOST.items()
        for stage in stages
        if stage.get(number)
    ]


def _grown(stages: list[dict[str, Any]]) -> list[str]:
    """A line of the report for each stage whose kept states grow by many keys."""
    return [
        f"stage {stage['stage']} '{stage['name']}' has {grown['keys']:,} keys more in its store, "
        f"some {grown['bytes']:,} bytes: without a ttl= they are kept until a state is None"
        for stage in stages
        if (grown := stage.get("grown")) and grown["keys"] >= _MANY_KEYS
    ]


def done_with(numbers: dict[str, Any]) -> int:
    """How many events have ended well: finished, or dropped by a stage."""
    done: int = numbers["finished"] + sum(numbers["dropped"].values())
    return done


def how_it_ended(outcome: str) -> str:
    """An outcome in words."""
    return _HOW_IT_ENDED.get(outcome, f"not ended ({outcome})")


def _unfinished(stages: list[dict[str, Any]]) -> list[str]:
    """Lines of the report about unfinished events of sources that cannot take them back."""
    lines: list[str] = []
    for stage in stages:
        where = f"{stage['name']} of {stage['detail']}"
        if tokens := stage.get("returned_tokens"):
            lines.append(f"  not finished, by {where}: {_ranges(tokens)}")
        if ahead := stage.get("read_ahead"):
            what = "line" if ahead == 1 else f"{ahead:,} lines"
            lines.append(f"  read and not begun, by {where}: the next {what}")
    return lines


def _ranges(tokens: list[Any]) -> str:
    """`1-3, 7`, in order, then tokens that are not numbers; the first few, and how many more, up to
    which number."""
    numbers = sorted({token for token in tokens if isinstance(token, int)})
    parts: list[tuple[str, int]] = []
    for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        first, last = members[0], members[-1]
        parts.append((str(first) if first == last else f"{first}-{last}", len(members)))
    parts += [(str(token), 1) for token in tokens if not isinstance(token, int)]
    shown = ", ".join(text for text, _ in parts[:_MOST_RANGES])
    more = sum(count for _, count in parts[_MOST_RANGES:])
    if not more:
        return shown
    up_to = f" up to {numbers[-1]}" if numbers else ""
    return f"{shown} and {more:,} more{up_to} (--report json and returned_tokens have them all)"


# Nouns, of which there may be one.
_ONE = {"retries": "retry", "recoveries": "recovery", "violations": "violation"}


def _troubles(stages: list[dict[str, Any]]) -> list[str]:
    lines: list[str] = []
    for stage in stages:
        troubles = [
            f"{stage[name]:,} {_ONE.get(name, name) if stage[name] == 1 else name}"
            for name in (
                "retries",
                "recoveries",
                "skipped",
                "reverted",
                "routed",
                "stuck",
                "violations",
                "evicted",
                "inconclusive",
                "unjudged",
                "lost",
            )
            if stage.get(name)
        ]
        if troubles:
            lines.append(f"  stage {stage['stage']} '{stage['name']}': {', '.join(troubles)}")
    return lines


def _recoveries_elsewhere(numbers: dict[str, Any]) -> list[str]:
    """A line about recoveries of stages not listed, as in the streams that `flat_map` reads."""
    listed = sum(_all("recoveries", numbers["stages"]))
    more = numbers.get("recoveries", 0) - listed
    what = "recovery" if more == 1 else "recoveries"
    return [f"  in streams that stages have read: {more:,} {what}"] if more > 0 else []


def _latencies(whose: str, latency: dict[str, Any] | None) -> list[str]:
    return [
        f"  {whose}{name} (ms): {_in_milliseconds(summary)}"
        for name, summary in (latency or {}).items()
        if summary["count"]
    ]


def _in_milliseconds(summary: dict[str, float]) -> str:
    return ", ".join(
        f"{label} {summary[field] * 1000:,.1f}"
        for label, field in (("p50", "median"), ("p99", "p99"), ("max", "max"))
    )


def _by_key(stage: dict[str, Any]) -> list[str]:
    """A line for each of the keys with the most events, and one for all others."""
    hottest, others = stage["by_key"], stage["other_keys"]
    where = "" if stage["of_stage"] is None else f"stage {stage['of_stage']}, "
    lines = [
        f"    {describe(one['key'])}, {counted(one['count'], 'event')}: "
        f"{_in_milliseconds(one['total'])}"
        for one in hottest[:_MOST_KEYS]
    ]
    count = others["count"] + sum(one["count"] for one in hottest[_MOST_KEYS:])
    if count:
        if len(hottest) > _MOST_KEYS:
            more = f" (--report json has {len(hottest)} keys)"
        else:
            more = f": {_in_milliseconds(others['total'])}"
        lines.append(f"    all others, {counted(count, 'event')}{more}")
    return [f"  {where}total by {stage['by']} (ms):", *lines] if lines else []


def _objectives(stages: list[dict[str, Any]]) -> list[str]:
    """A line for each objective: whether it is kept, and which share was good."""
    lines: list[str] = []
    for stage in stages:
        if "objective" not in stage:
            continue
        good, count = stage["good"], stage["good"] + stage["bad"]
        asked = f"{100 * stage['share']:.10g} %"
        if not count:
            lines.append(f"  objective {stage['objective']}: no events")
            continue
        verdict = "kept" if stage["kept"] else "MISSED"
        # Rounded down: what is missed by a little must not look as if it were kept.
        share = f"{good * 100_000 // count / 1_000:.10g} %"
        of = counted(count, "event" if stage["of"] == "events" else "slice")
        if stage["of"] != "events":
            of += " of 10 s"
        were = "was" if count == 1 else "were"
        lines.append(
            f"  objective {stage['objective']}: {verdict}, {share} of {of} {were} good, "
            f"{asked} are asked for"
        )
    return lines
