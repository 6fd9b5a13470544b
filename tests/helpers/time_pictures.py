"""Draws what the page about time explains, from what pipelines on virtual time have done.

    make pictures ARGS=time

writes `watermark.svg`, `idle.svg` and `session.svg` into docs/images.
"""

from __future__ import annotations

import asyncio
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from penstock import Window, agg, event_time, for_each, inbox, ops, session, tumbling, window
from penstock.streams.testing import run_virtual
from penstock.streams.windows.windows import windows_of

__all__ = ["IMAGES", "pictures"]

IMAGES = Path(__file__).parents[2] / "docs/images"

# When events come from each source, and when they have happened.
Story = dict[str, list[tuple[float, float]]]

OUT_OF_ORDER: Story = {
    "events": [
        *((1.0, 2.0), (2.0, 5.0), (3.0, 4.0), (4.0, 9.0), (5.0, 12.0), (6.0, 8.0), (7.0, 16.0)),
        *((8.0, 14.0), (9.0, 21.0), (10.0, 6.0), (11.0, 23.0), (12.0, 27.0)),
    ]
}
ONE_STOPS: Story = {
    "a": [(float(at), float(at)) for at in range(1, 22, 2)],
    "b": [(float(at), at - 1.0) for at in range(2, 8, 2)],
}

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 720, 330, 52, 22, 190, 44

_STYLE = """
    text { font-family: ui-sans-serif, system-ui, "Segoe UI", Helvetica, Arial, sans-serif;
      font-size: 12px; fill: #14344c; }
    .sheet { fill: #ffffff; }
    .axis { stroke: #9db8cc; }
    .soft { fill: #52697a; }
    .end { stroke: #9db8cc; stroke-dasharray: 2 4; }
    .watermark { fill: none; stroke: #b08948; stroke-width: 2.5; }
    .a { fill: #3f86b5; }
    .b { fill: #5f9c6b; }
    .late { fill: none; stroke: #a33a2c; stroke-width: 2; }
    .closed { fill: #b08948; }
    .session { fill: #dcecf7; stroke: #4f8db5; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e4eef5; }
      .sheet { fill: #10181f; }
      .soft { fill: #9fb4c3; }
      .axis, .end { stroke: #3d5a70; }
      .late { stroke: #f0a093; }
      .session { fill: #1b3a50; stroke: #6ba3c7; }
    }
"""


class Recorded(NamedTuple):
    """The watermark by the clock, and of each closed window its end, the clock and its value."""

    watermarks: list[tuple[float, float]]
    closed: list[tuple[float, float, int]]
    late: int


def recorded(story: Story, seconds: float, lateness: float, idle: float) -> Recorded:
    """What windows of ten seconds do with a story."""

    async def main() -> Recorded:
        now = asyncio.get_running_loop().time
        closed: list[tuple[float, float, int]] = []
        boxes = [inbox(9) for _ in story]
        first, *others = (
            box.pipe(event_time(lambda at: at, lateness, idle, None)) for box in boxes
        )
        merged = first.pipe(ops.merge(*others)) if others else first

        def note(one: Window[int]) -> None:
            closed.append((one.end, now(), one.value))

        running = merged.pipe(window(tumbling(10), agg.count())).to(for_each(note)).start()

        async def play(box: Any, events: list[tuple[float, float]]) -> None:
            for clock, at in events:
                await asyncio.sleep(clock - now())
                await box.put(at)

        playing = [
            asyncio.ensure_future(play(box, events))
            for box, events in zip(boxes, story.values(), strict=True)
        ]
        watermarks: list[tuple[float, float]] = []
        while now() < seconds:
            # Between the events, which come at whole seconds.
            await asyncio.sleep(0.125)
            (stage,) = [one for one in running.statistics()["stages"] if one["name"] == "window"]
            if stage["watermark"] is not None and stage["watermark"] >= 0:
                watermarks.append((now(), stage["watermark"]))
        await asyncio.gather(*playing)
        running.cancel()
        return Recorded(watermarks, closed, stage["late"])

    return run_virtual(main())


def _over_time(
    title: str, story: Story, seconds: float, lateness: float, idle: float, notes: list[str]
) -> str:
    """Events and the watermark, by the clock from left to right and by event time upwards."""
    found = recorded(story, seconds, lateness, idle)
    latest = max(*(at for events in story.values() for _, at in events), found.watermarks[-1][1])

    def x(clock: float) -> float:
        return _LEFT + clock * (_WIDTH - _LEFT - _RIGHT) / seconds

    def y(at: float) -> float:
        return _HEIGHT - _BOTTOM - at * (_HEIGHT - _TOP - _BOTTOM) / latest

    right = x(seconds)
    parts = [
        f'<path class="axis" fill="none" d="M{_LEFT} {_TOP}V{y(0):g}H{right:g}"/>',
        _text(_LEFT, _HEIGHT - 14, "clock: when events come →", "soft"),
        f'<g transform="translate(20 {y(0):g}) rotate(-90)">'
        + _text(0, 0, "event time: when they happened →", "soft")
        + "</g>",
    ]
    for end in range(10, int(latest) + 1, 10):
        parts.append(f'<path class="end" d="M{_LEFT} {y(end):g}H{right:g}"/>')
        parts.append(_text(_LEFT - 8, y(end) + 4, str(end), "soft", "end"))
    steps = "".join(f"L{x(clock):.1f} {y(at):.1f}" for clock, at in found.watermarks)
    parts.append(f'<path class="watermark" d="M{steps[1:]}"/>')
    watermark = dict(found.watermarks)
    for kind, events in zip("ab", story.values(), strict=False):
        for clock, at in events:
            before = watermark.get(clock, -1.0)
            # Its window has been closed.
            shape = "late" if at // 10 * 10 + 10 <= before else kind
            parts.append(f'<circle class="{shape}" cx="{x(clock):g}" cy="{y(at):g}" r="4.5"/>')
    for end, clock, value in found.closed:
        parts.append(f'<path class="closed" d="M{x(clock):g} {y(end) - 6:g}l6 6l-6 6l-6 -6z"/>')
        parts.append(_text(x(clock) + 10, y(end) + 16, f"closes with {value}"))
    for at, (name, note) in enumerate(one.split(": ") for one in notes):
        left, top = right + 24, _TOP + 20 * at + 8
        if name == "watermark":
            mark = f'<path class="watermark" d="M{left - 8:g} {top}h16"/>'
        elif name == "closes":
            mark = f'<path class="closed" d="M{left:g} {top - 6}l6 6l-6 6l-6 -6z"/>'
        else:
            mark = f'<circle class="{name}" cx="{left:g}" cy="{top}" r="4.5"/>'
        parts += [mark, _text(left + 16, top + 4, note)]
    return _document(title, _WIDTH, _HEIGHT, parts)


def _sessions(title: str, times: list[float], gap: float) -> str:
    """The sessions of one key after each event, by event time from left to right."""
    windows = windows_of(session(gap), agg.count())
    state = windows.new()
    row, scale = 50, 5.2
    parts: list[str] = []
    for number, time in enumerate(times):
        assert windows.add(state, time, None, -float("inf"))
        top = 34 + row * number
        parts.append(
            _text(16, top + 19, f"after {', '.join(f'{at:g}' for at in times[: number + 1])}")
        )
        for start, end, count, *_ in state:
            left, width = 130 + start * scale, (end - start) * scale
            place = f'x="{left:g}" y="{top}" width="{width:g}" height="28"'
            parts.append(f'<rect class="session" {place} rx="6"/>')
            text = f"{start:g} to {end:g}: {count}"
            parts.append(_text(left + width - 8, top + 18, text, "", "end"))
        for at in times[: number + 1]:
            parts.append(f'<circle class="a" cx="{130 + at * scale:g}" cy="{top + 14}" r="4.5"/>')
    height = 34 + row * len(times) + 20
    parts.append(_text(130, height - 14, "event time →", "soft"))
    parts.append(_text(16, 20, f"session(gap={gap:g}): each event begins or extends one"))
    return _document(title, _WIDTH, height, parts)


def _document(title: str, width: int, height: int, parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="title">\n'
        f'  <title id="title">{escape(title)}</title>\n  <style>{_STYLE}  </style>\n'
        f'  <rect class="sheet" width="{width}" height="{height}" rx="12"/>\n'
        + "".join(f"  {part}\n" for part in parts)
        + "</svg>\n"
    )


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    words = f' class="{kind}"' * bool(kind) + f' text-anchor="{anchor}"' * (anchor != "start")
    return f'<text x="{x:g}" y="{y:g}"{words}>{escape(text)}</text>'


def pictures() -> dict[str, str]:
    """The documents by their names."""
    return {
        "watermark": _over_time(
            "Events that come out of order, and the watermark 5 seconds behind the greatest time: "
            "a window closes when the watermark reaches its end, and one event is late",
            *(OUT_OF_ORDER, 16, 5, 60),
            [
                "a: an event",
                "watermark: the watermark",
                "closes: a window closes",
                "late: a late event",
            ],
        ),
        "idle": _over_time(
            "Two sources, of which one stops: the watermark waits for it until it is idle, then "
            "follows the other, and when that is silent too, the clock",
            *(ONE_STOPS, 42, 0, 10),
            [
                "a: an event of one source",
                "b: an event of the other",
                "watermark: the watermark",
                "closes: a window closes",
            ],
        ),
        "session": _sessions(
            "Two sessions of one user, which an event between them joins to one",
            *([5, 60, 32], 30),
        ),
    }
