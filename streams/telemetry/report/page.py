"""The report page of one run: its account, picture, latencies, limits, errors and machine.

Every number is one of the report's statistics or of the recorder. Values of events, which are keys
and the texts of errors, are on it only with `show_values`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from penstock.streams.base.errors import describe, message_of, notes_of
from penstock.streams.diagnostics.histogram import LatencyHistogram
from penstock.streams.pictures.charts import (
    Curve,
    Line,
    in_time,
    nines_of,
    over_time,
    percentiles,
)
from penstock.streams.pictures.pipeline import as_svg, drawn
from penstock.streams.protocol.numbering import all_stages
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.recording.recorder import Recorder
from penstock.streams.running.report import Report, done_with, how_it_ended, notes_on
from penstock.streams.telemetry.report.history import History, Point
from penstock.streams.telemetry.report.html import Cell, Html, document, section, table, text
from penstock.streams.telemetry.report.machine import machine

__all__ = ["report_page"]

_HIDDEN = "shown only with --show-values or show_values=True"

# Keys and characters that are shown.
# Between the median of one and the greatest of another latency.
_FAR = 30

_KEYS, _SHOWN = 10, 500

_PARTS = (
    ("waiting", "one", "Waiting: from creation to the start of its handler"),
    ("service", "two", "Service: in the handler"),
    ("total", "three", "Total: both together"),
)

# A stage's numbers that are somewhere else on the page, or are lists of any length.
_ELSEWHERE = frozenset(
    (
        *("stage", "name", "detail", "sent", "limit", "limit_reason", "latency", "emitted"),
        *("returned_tokens", "by_worker", "watermarks", "waits_for", "grown", "restoring"),
        *("hottest", "hottest_waiting", "hottest_keys"),
        *("objective", "share", "of", "of_stage", "required", "good", "bad", "kept", "burning"),
        *("windows", "by", "by_key", "other_keys"),
    )
)


# Of them, those that the page shows in the picture and the charts of the pipeline's own stages.
_OF_INPUTS = frozenset(("sent", "limit", "limit_reason"))


def report_page(
    report: Report,
    stages: list[StageInfo],
    recorder: Recorder,
    history: History,
    title: str | None,
    *,
    show_values: bool,
) -> str:
    """The page about a run that has ended, as a document in HTML."""
    numbers = report.statistics
    name = title or " > ".join(stage.name for stage in stages)
    body = [
        _header(name, report, recorder),
        section("Where every event is", _account(numbers)),
        section("Pipeline", [_picture(name, stages, recorder.last, numbers)]),
        Html(
            '<div class="sides">'
            + section("Throughput", _throughput(numbers, history.points))
            + "".join(_limits(stages, numbers, recorder, history))
            + "</div>"
        ),
        section("Latency", _latency(recorder.latencies(), numbers["latency"] or {})),
        *_objectives(numbers["stages"]),
        *_by_key(numbers["stages"], show_values=show_values),
        *_errors(report, recorder, show_values=show_values),
        *_bad_lines(numbers, recorder, show_values=show_values),
        section("Stages", [_stages(numbers["stages"])], long=True),
        Html(
            '<div class="sides">'
            + "".join(_keys(recorder, show_values=show_values))
            + section("Machine and versions", [table(("", ""), machine().items(), texts=(1,))])
            + "</div>"
        ),
    ]
    return document(f"{name}: {report.outcome}", body)


def _header(name: str, report: Report, recorder: Recorder) -> Html:
    numbers = report.statistics
    seconds = numbers["seconds"]
    began = datetime.fromtimestamp(recorder.began).astimezone()
    kind = "outcome" if report.exit_status in (0, 4) else "outcome bad"
    rate = f", {done_with(numbers) / seconds:,.0f} events/s" if seconds > 0 else ""
    return Html(
        f'<header><h1>{text(name)}</h1><p><span class="{kind}">'
        f"{text(how_it_ended(report.outcome))}</span> after {text(in_time(seconds))}{rate}; "
        f"exit status {report.exit_status}</p><p>begun {began:%Y-%m-%d %H:%M:%S %Z}</p></header>"
    )


def _account(numbers: dict[str, Any]) -> Iterator[str]:
    """in = finished + dropped + failed + returned, and what has not ended."""
    parts = [("finished", numbers["finished"], "finished")]
    parts += [(f"dropped ({cause})", n, "dropped") for cause, n in numbers["dropped"].items()]
    if not numbers["dropped"]:
        parts.append(("dropped", 0, "dropped"))
    parts += [(name, numbers[name], name) for name in ("failed", "returned")]
    if numbers["unfinished"]:
        parts.append(("unfinished", numbers["unfinished"], "unfinished"))
    words = [f"<div><b>{text(numbers['in'])}</b>in</div>"]
    for at, (name, count, kind) in enumerate(parts):
        bad = ' class="bad"' if kind in ("failed", "unfinished") and count else ""
        sign = "+" if at else "="
        words.append(f'<div class="sign">{sign}</div>')
        words.append(f"<div{bad}><b>{text(count)}</b>{text(name)}</div>")
    yield f'<div class="account">{"".join(words)}</div>'
    if numbers["in"]:
        widths = "".join(
            f'<i class="{kind}" style="width:{100 * count / numbers["in"]:.3f}%"></i>'
            for _, count, kind in parts
            if count
        )
        yield f'<div class="bar" aria-hidden="true">{widths}</div>'
    if numbers["bad_lines"]:
        lines = "line was" if numbers["bad_lines"] == 1 else "lines were"
        yield (f'<p class="soft">Besides, {text(numbers["bad_lines"])} {lines} not an event.</p>')
    for note in notes_on(numbers["stages"]):
        yield f'<p class="soft">{text(note[0].upper() + note[1:])}.</p>'


def _picture(name: str, stages: list[StageInfo], last: int, numbers: dict[str, Any]) -> Html:
    counts = {stage["stage"]: stage for stage in _own(numbers) if "sent" in stage}
    column = [stage for stage in stages if stage.number <= last]
    sinks = stages[len(column) :]
    begun = {stage["stage"] for stage in _own(numbers)}
    sent: dict[tuple[int, int], str] = {}
    for stage, above in drawn(stages, len(sinks)):
        for one in above:
            # A group_by and its spread are one stage when they run.
            there = counts.get(one, counts.get(stage.number) if stage.name == "spread" else None)
            if there is not None:
                count = there.get("sent_to", {}).get(stage.number, there["sent"])
                sent[one, stage.number] = f"{count:,}"
            elif one not in begun and stage.name != "spread":
                # Nothing has read this stream, such as the other one of a `catch` without an error.
                sent[one, stage.number] = "0"
    shown = as_svg(column, sinks, name, sent)
    # As wide as it is on a screen, where it can be scrolled; on paper it has to fit.
    wide = ' wide" tabindex="0' if any(stage.inputs for stage in column) else ""
    return Html(f'<div class="picture{wide}">{shown}</div>')


def _own(numbers: dict[str, Any]) -> list[dict[str, Any]]:
    """The pipeline's own stages, without those of other streams that it reads."""
    return [stage for stage in numbers["stages"] if "read_by" not in stage]


def _throughput(numbers: dict[str, Any], points: list[Point]) -> Iterator[str]:
    rates: list[tuple[float, float, float, float, float]] = []
    before = 0.0
    for point in points:
        span = point.at - before
        if span > 1e-6:
            by_time = (point.arrived / span, point.finished / span, point.failed / span)
            rates.append((before + span / 2, *by_time, point.waiting))
        before = point.at
    yield (
        '<p class="legend"><span class="quiet">arrived</span><span>finished</span>'
        '<span class="bad">failed</span> events per second</p>'
    )
    arrived, finished, failed, waiting = (
        [(rate[0], rate[column]) for rate in rates] for column in (1, 2, 3, 4)
    )
    lines = [Line("arrived", "quiet", arrived), Line("finished", "one", finished, filled=True)]
    if any(y for _, y in failed):
        lines.append(Line("failed", "bad", failed))
    seconds = numbers["seconds"]
    yield over_time(lines, seconds=seconds, label="Events per second")
    yield '<p class="legend"><span class="two">waiting events</span></p>'
    yield over_time(
        [Line("waiting", "two", waiting, filled=True)],
        seconds=seconds,
        size=(540, 110),
        label="Waiting events",
        whole=True,
    )


def _limits(
    stages: list[StageInfo], numbers: dict[str, Any], recorder: Recorder, history: History
) -> Iterator[Html]:
    named = {stage.number: str(stage) for stage in all_stages(stages)}
    for stage in _own(numbers):
        if "limit" in stage:
            parts = _limit(numbers["seconds"], stage, recorder, history.points)
            yield section(f"Limit of {named[stage['stage']]}", parts)


def _limit(
    seconds: float, stage: dict[str, Any], recorder: Recorder, points: list[Point]
) -> Iterator[str]:
    number, last = stage["stage"], stage["limit"]
    changes = [change for change in recorder.changes if change.stage == number]
    reasons = {why: count for (of, why), count in recorder.reasons.items() if of == number}
    first = changes[0].at if changes else seconds
    limits = [(p.at, float(p.calls[number][1])) for p in points if p.at < first]
    if len(changes) == sum(reasons.values()):
        limits = [(0.0, float(changes[0].before if changes else last))]
    limits += [(change.at, float(change.after)) for change in changes]
    calls = [(p.at, float(p.calls[number][0])) for p in points]
    yield (
        '<p class="legend"><span class="three">limit</span>'
        "<span>calls in flight, once per second</span></p>"
    )
    yield over_time(
        [
            Line("in flight", "one", calls, filled=True),
            Line("limit", "three", [*limits, (seconds, float(last))], steps=True),
        ],
        seconds=seconds,
        label="Limit and calls in flight",
        whole=True,
    )
    yield f"<p>At the end {text(last)}: {text(stage['limit_reason'] or 'it never changed')}.</p>"
    if not reasons:
        return
    rows: list[tuple[str | int, ...]] = []
    for why, count in sorted(reasons.items(), key=lambda one: -one[1]):
        latest = next((one for one in reversed(changes) if one.reason == why), None)
        seen = ("", "")
        if latest is not None:
            seen = (in_time(latest.at), f"{latest.before:,} to {latest.after:,}")
        rows.append((why, count, *seen))
    yield table(("why it changed", "changes", "last at", "then from"), rows, texts=(0,))


def _latency(histograms: dict[str, LatencyHistogram], summaries: dict[str, Any]) -> Iterator[str]:
    if not any(summary["count"] for summary in summaries.values()):
        yield '<p class="soft">No event reached a sink.</p>'
        return
    top = max(summary["max"] for summary in summaries.values())
    middles = [summary["median"] for summary in summaries.values() if summary["median"]]
    # Too different to be seen on an axis with equal steps.
    least = min(middles, default=top) if top > _FAR * min(middles, default=top) else None
    nines = nines_of(max(summary["count"] for summary in summaries.values()))
    if least is not None:
        yield '<p class="soft">Each step upwards is ten times as long.</p>'
    yield '<div class="trio">'
    for name, kind, what in _PARTS:
        cells = histograms[name].cells()
        chart = percentiles(Curve(name, kind, cells), top=top, nines=nines, least=least)
        yield f"<figure><h3>{text(name.capitalize())}</h3>{chart}"
        yield f"<figcaption>{text(what.partition(': ')[2])}</figcaption></figure>"
    yield "</div>"
    fields = ("min", "mean", "median", "p75", "p95", "p98", "p99", "p999", "max")
    yield table(
        (
            "milliseconds",
            "events",
            "min",
            "mean",
            "p50",
            "p75",
            "p95",
            "p98",
            "p99",
            "p99.9",
            "max",
        ),
        (
            (name, summary["count"], *(f"{summary[field] * 1000:,.3f}" for field in fields))
            for name, summary in summaries.items()
        ),
    )


def _objectives(stages: list[dict[str, Any]]) -> Iterator[Html]:
    rows: list[tuple[str | int, ...]] = []
    for stage in stages:
        if "objective" not in stage:
            continue
        count = stage["good"] + stage["bad"]
        # Rounded down: what is missed by a little must not look as if it were kept.
        good = f"{stage['good'] * 100_000 // count / 1000:.10g} %" if count else ""
        verdict = {True: "kept", False: "missed", None: "no events"}[stage["kept"]]
        asked = f"{100 * stage['share']:.10g} %"
        rows.append((stage["objective"], verdict, good, asked, f"{count:,} {stage['of']}"))
    if rows:
        heads = ("objective", "", "good", "asked", "of")
        yield section("Objectives", [table(heads, rows, texts=(0, 1))])


def _by_key(stages: list[dict[str, Any]], *, show_values: bool) -> Iterator[Html]:
    rows: list[tuple[str | int, ...]] = []
    for stage in stages:
        if "by_key" not in stage:
            continue
        where = "" if stage["of_stage"] is None else f"stage {stage['of_stage']}: "
        shown = [
            (_short(describe(one["key"])) if show_values else f"key {at}", one)
            for at, one in enumerate(stage["by_key"], 1)
        ]
        shown.append(("all other keys", stage["other_keys"]))
        for name, one in shown:
            times = [(one[part], at) for part, at in _OF_KEYS]
            if one["count"]:
                milliseconds = [f"{part[at] * 1000:,.1f}" for part, at in times]
                rows.append((where + name, one["count"], *milliseconds))
    if rows:
        heads = ("milliseconds", "events", *(f"{part} {at}" for part, at in _OF_KEYS))
        parts: list[str] = [table(heads, rows, texts=(0,))]
        if not show_values:
            parts.append(f'<p class="soft">The keys are {_HIDDEN}.</p>')
        yield section("Latency by key", parts, long=True)


_OF_KEYS = (
    *(("waiting", "p99"), ("service", "p99")),
    *(("total", "median"), ("total", "p99"), ("total", "max")),
)
"""What is shown of the latencies of a key: parts, and numbers of their summaries."""


def _errors(report: Report, recorder: Recorder, *, show_values: bool) -> Iterator[Html]:
    kinds = report.statistics["errors"]
    parts: list[str] = []
    if report.error is not None:
        error = report.error
        what = type(error).__name__
        if show_values:
            notes = notes_of(error)
            shown = "\n".join([f"{what}: {message_of(error, 2_000)}", *notes])
            parts.append(f"<p>The run was ended by</p><pre>{text(shown)}</pre>")
        else:
            parts.append(
                f"<p>The run was ended by <code>{text(what)}</code>; its text is {_HIDDEN}.</p>"
            )
    if kinds:
        rows: list[tuple[str | int, ...]] = []
        for kind, count in sorted(kinds.items(), key=lambda one: -one[1]):
            where, message = recorder.examples.get(kind, ("", ""))
            rows.append((kind, count, where, *([_short(message)] if show_values else [])))
        heads = ("error", "events", "where", *(["the last one"] if show_values else []))
        parts.append(table(heads, rows, texts=(2, 3)))
        if not show_values:
            parts.append(f'<p class="soft">Their texts are {_HIDDEN}.</p>')
    if parts:
        yield section("Errors", parts, long=True)


def _bad_lines(numbers: dict[str, Any], recorder: Recorder, *, show_values: bool) -> Iterator[Html]:
    if not numbers["bad_lines"]:
        return
    parts: list[str] = []
    if show_values:
        rows = [(_short(line.text),) for line in recorder.bad_lines]
        parts.append(table(("what is wrong",), rows, texts=(0,)))
    else:
        places = "; ".join(line.where for line in recorder.bad_lines if line.where)
        parts.append(f'<p>{text(places)}</p><p class="soft">Their text is {_HIDDEN}.</p>')
    if more := numbers["bad_lines"] - len(recorder.bad_lines):
        parts.append(f'<p class="soft">and {text(more)} more</p>')
    yield section(f"Bad lines: {numbers['bad_lines']:,}", parts, long=True)


def _keys(recorder: Recorder, *, show_values: bool) -> Iterator[Html]:
    keys = recorder.keys
    if not len(keys):
        return
    rows: list[tuple[str | int, ...]] = []
    for at, one in enumerate(keys.hottest(_KEYS), 1):
        key = _short(str(one.key)) if show_values else f"key {at}"
        # Those of worker processes are seen only while they wait.
        share = (f"{100 * one.events / keys.total:.1f} %",) if keys.total else ()
        rows.append((key, *share, one.waiting, in_time(one.age) if one.waiting else ""))
    heads = ("key", *(["of all events"] if keys.total else []), "most waiting", "longest wait")
    caption = "Waiting events were counted once per second"
    if keys.total:
        caption = (
            "Shares of about a thousand events per second; waiting events were counted once per "
            "second"
        )
    parts: list[str] = [table(heads, rows, texts=(0,), caption=caption)]
    if not show_values:
        parts.append(f'<p class="soft">The keys are {_HIDDEN}.</p>')
    yield section("Hottest keys", parts, long=True)


def _stages(stages: list[dict[str, Any]]) -> Html:
    rows: list[tuple[str | int | Cell, ...]] = []
    for stage in stages:
        # Those of other streams are nowhere else on the page.
        elsewhere = _ELSEWHERE - _OF_INPUTS if "read_by" in stage else _ELSEWHERE
        shown = {
            name: _plain(value)
            for name, value in stage.items()
            if name not in elsewhere and value not in (None, {}, [], 0, "", False)
        }
        settings = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())
        rows.append((stage["stage"], f"{stage['name']} {stage['detail']}".rstrip(), settings))
    return table(("", "stage", "its other numbers that are not 0"), rows, texts=(1, 2))


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, dict):
        return " ".join(f"{name} {_plain(one)}" for name, one in value.items())  # pyright: ignore
    return _short(str(value))


def _short(value: str) -> str:
    return value if len(value) <= _SHOWN else value[: _SHOWN - 1] + "…"
