"""The text of a report: a few lines for people."""

from __future__ import annotations

from itertools import groupby
from typing import Any

__all__ = ["as_text", "how_it_ended"]

_HOW_IT_ENDED = {
    "completed": "completed",
    "drained": "drained on a signal",
    "output closed": "ended when the output was closed",
    "stopped": "stopped by an error",
    "overrun": "cancelled when the drain's deadline had passed",
    "cancelled": "cancelled",
}

# How many unfinished tokens are shown; `returned_tokens` has all.
_MOST_RANGES = 5


def as_text(outcome: str, numbers: dict[str, Any]) -> str:
    """A few lines: how it ended, the events by outcome, troubles, the latencies."""
    seconds = numbers["seconds"]
    rate = f", {numbers['finished'] / seconds:,.0f} events/s" if seconds > 0 else ""
    lines = [f"penstock: {how_it_ended(outcome)} after {seconds:.1f} s{rate}"]
    counts = [f"{numbers['in']:,} in", f"{numbers['finished']:,} finished"]
    counts += [f"{n:,} dropped ({cause})" for cause, n in numbers["dropped"].items()]
    for name in ("failed", "returned", "waiting", "in_flight"):
        if numbers[name]:
            counts.append(f"{numbers[name]:,} {name.replace('_', ' ')}")
    lines.append("  events: " + ", ".join(counts))
    if workers := max((len(stage.get("workers", ())) for stage in numbers["stages"]), default=0):
        lines.append(f"  worked on by {workers:,} worker process{'es' * (workers != 1)}")
    if numbers["bad_lines"]:
        lines.append(f"  bad lines: {numbers['bad_lines']:,}")
    if unknown := sum(stage.get("created_unknown", 0) for stage in numbers["stages"]):
        lines.append(f"  events without a readable time of creation: {unknown:,}")
    if closed := numbers["closed_early"]:
        early = ", ".join(f"{n:,} groups closed early ({cause})" for cause, n in closed.items())
        lines.append(f"  {early}: their results are made of only a part of their events")
    if outcome in ("stopped", "overrun", "cancelled"):
        lines += _unfinished(numbers["stages"])
    lines += _troubles(numbers["stages"])
    lines += _latencies(numbers["latency"])
    return "\n".join(lines)


def how_it_ended(outcome: str) -> str:
    """An outcome in words."""
    return _HOW_IT_ENDED.get(outcome, f"not ended ({outcome})")


def _unfinished(stages: list[dict[str, Any]]) -> list[str]:
    """The unfinished events of a source that cannot take them back."""
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


def _troubles(stages: list[dict[str, Any]]) -> list[str]:
    lines: list[str] = []
    for stage in stages:
        troubles = [
            f"{stage[name]:,} {name}"
            for name in (
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


def _latencies(latency: dict[str, Any] | None) -> list[str]:
    lines: list[str] = []
    for name, summary in (latency or {}).items():
        if summary["count"]:
            values = ", ".join(
                f"{label} {summary[field] * 1000:,.1f}"
                for label, field in (("p50", "median"), ("p99", "p99"), ("max", "max"))
            )
            lines.append(f"  {name} (ms): {values}")
    return lines
