"""Every number of the live page is one of `statistics()`, compared in each second of a run.

The statistics are taken right before and right after the page's own: nothing has happened between
the two but that time has passed.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise
from math import floor, log1p, log10
from pathlib import Path
from time import sleep
from typing import Any, NamedTuple

import pytest
from playwright.async_api import async_playwright

from penstock import (
    Fixed,
    adaptive_flat_map,
    dead_letters,
    distinct_within,
    for_each,
    group_by,
    latency_histogram,
    ops,
    read_jsonl,
    route,
    spread,
)
from penstock.streams.recording.recorder import LATENCIES, Sample
from tests.helpers.browser import ARGUMENTS

_Event = dict[str, int]


class Second(NamedTuple):
    """One second: the statistics before and after the page's, and what the recorder keeps of it."""

    before: dict[str, Any]
    after: dict[str, Any]
    sample: Sample


def test_every_number_is_one_of_the_statistics_while_it_runs(chromium: str, tmp_path: Path) -> None:
    """Two sinks, operators inside groups, and a stage that fails. The handler is stopped now and
    then, so that the page is compared while nothing changes, too."""
    # In a thread, for other tests have a loop running in this one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, _compared(chromium, tmp_path)).result()


async def _compared(chromium: str, folder: Path) -> None:
    allowed = asyncio.Semaphore(0)
    lines = folder / "lines.jsonl"
    lines.write_text("".join(f'{{"n": {n}}}\n' for n in range(20_000)), encoding="utf-8")

    async def work(pair: tuple[_Event, _Event]) -> int:
        await allowed.acquire()
        return 1 // (pair[0]["n"] % 5)

    def own(event: _Event) -> int:
        return event["n"] // 2 if event["n"] < 20 else event["n"]

    pairs = group_by(
        lambda event: event["n"] % 7, each=lambda group: group.pipe(ops.pairwise()), idle=3_000
    )
    letters = route(dead_letters(folder / "letters.jsonl"))
    pipeline = (
        read_jsonl(lines)
        .pipe(
            distinct_within(3_000, by=own),
            pairs,
            spread(),
            # More than there are keys.
            adaptive_flat_map(work, Fixed(9), on_error=letters),
        )
        .to(for_each(bool), latency_histogram(every=None, report=None))
    )
    async with (
        asyncio.timeout(120),
        async_playwright() as playwright,
        pipeline.start() as running,
    ):
        recorder = running.record()
        # The first sample is late, as on a busy machine.
        asyncio.get_running_loop().call_soon(sleep, 1.6)
        await asyncio.sleep(0)
        before: list[dict[str, Any]] = []
        after: list[dict[str, Any]] = []
        recorder.on_sample.append(lambda: before.append(running.statistics()))
        async with running.serve(0) as serving:
            recorder.on_sample.append(lambda: after.append(running.statistics()))
            browser = await playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
            page = await browser.new_page()
            await page.goto(serving.url)
            await page.wait_for_selector(".stage")
            await page.evaluate(_NOTE)
            for more in (0, 137, 1_003):
                for _ in range(more):
                    allowed.release()
                # Of three more lines, the last two show nothing that changes.
                seen = await page.evaluate("samples.length")
                await page.wait_for_function("seen => samples.length >= seen + 3", arg=seen)
                assert allowed.locked()
            noted: list[dict[str, Any]] = await page.evaluate("noted")
            await browser.close()
            seconds = [
                Second(*three) for three in zip(before, after, recorder.samples, strict=True)
            ]
            bounds = {stage.number: stage.own_bound for stage in running.describe()}
            running.cancel()
            await running.wait()
    assert {len(shown["stages"]) for shown in noted} == {7}
    for shown in noted:
        _compare(shown, seconds[: shown["seconds"]], bounds)
    rates = {rate for shown in noted for rate in shown["rates"]}
    # Some seconds had events on every arrow, and some on none.
    assert len(rates) > 3
    assert "0/s" in rates


# From now on, note what stands on the page after each line that it has read.
_NOTE = """() => {
  const texts = (query) => [...document.querySelectorAll(query)].map((one) => one.textContent);
  const rows = (table) => [...document.querySelectorAll(`#${table} tbody tr`)]
    .map((row) => [...row.cells].map((cell) => cell.textContent));
  const path = (node) => node.getAttribute("d").slice(1).split("L")
    .map((point) => point.split(" ").map(Number));
  const heat = () => {
    const { width, height } = byId("heat");
    const { data } = byId("heat").getContext("2d").getImageData(0, 0, width, height);
    const cells = [];
    for (let at = 0; at < width * height; at += 1) {
      const row = height - 1 - Math.floor(at / width);
      if (data[4 * at + 3]) cells.push([at % width, row, data[4 * at + 3]]);
    }
    return { width, height, cells };
  };
  const note = () => ({
    seconds: samples.length,
    state: texts("#state")[0],
    totals: texts("#totals dd"),
    account: rows("account"),
    errors: rows("errors").map((row) => row.slice(0, 2)),
    letters: rows("letters").map((row) => row.slice(0, 2)),
    latency: rows("latency"),
    keys: rows("keys").map((row) => row.slice(1)),
    bars: [...document.querySelectorAll("#keys .share i")].map((bar) => bar.style.width),
    stages: [...document.querySelectorAll(".stage .numbers")]
      .map((line) => [...line.children].map((one) => one.textContent)),
    levels: texts(".stage .level"),
    fills: [...document.querySelectorAll(".stage .fill")].map((fill) => fill.style.width),
    why: texts(".stage .why").filter(Boolean),
    rates: texts(".arrow b"),
    limits: [...document.querySelectorAll(".spark .limit")].map(path),
    used: [...document.querySelectorAll(".spark .used")]
      .map((area) => path(area).slice(1, -1).map(([, y]) => y)),
    arrived: path(document.querySelector("#throughput .arrived")),
    finished: path(document.querySelector("#throughput .finished")),
    highest: texts("#throughput-top")[0],
    heat: heat(),
    scale: texts("#heat-scale span"),
    median: byId("heat").getAttribute("aria-label"),
  });
  window.noted = [];
  const shown = show;
  show = () => {
    shown();
    noted.push(note());
  };
}"""


def _compare(shown: dict[str, Any], seconds: list[Second], bounds: dict[int, int | None]) -> None:
    """Whether the page has shown the last of these seconds, and the minutes before it."""
    now, then = seconds[-1].before, seconds[-1].after
    _compare_counts(shown, now, bounds)
    _compare_ages(shown, now, then)
    _compare_rates(shown, seconds)
    _compare_limits(shown, [second.before["stages"][4] for second in seconds])
    _compare_heat(shown, seconds)


def _compare_counts(
    shown: dict[str, Any], now: dict[str, Any], bounds: dict[int, int | None]
) -> None:
    source, distinct, group, _, flat, each, _ = now["stages"]
    dropped = [(f"dropped: {cause}", n) for cause, n in now["dropped"].items()]
    assert now["in"] == now["unfinished"] + now["finished"] + now["failed"] + sum(
        n for _, n in dropped
    )
    account = [("in", now["in"]), ("finished", now["finished"]), *dropped]
    account += [("failed", now["failed"])] if now["failed"] else []
    account += [("waiting", now["waiting"]), ("in flight", now["in_flight"])]
    assert shown["state"] == now["state"]
    assert shown["totals"][1:4] == [
        f"{now['finished']:,}",
        f"{now['waiting']:,}",
        f"{now['in_flight']:,} / {now['limit']:,}",
    ]
    assert shown["account"] == [[name, f"{n:,}", _part(n, now["in"])] for name, n in account]
    errors = [[kind, f"{n:,}"] for kind, n in now["errors"].items()]
    if repeated := distinct["skipped_duplicates"]:
        errors.append(["duplicates of failed events", f"{repeated:,}"])
    assert shown["errors"] == errors
    routed = [["5 adaptive_flat_map", f"{flat['routed']:,}"]] if flat["routed"] else []
    assert shown["letters"] == routed
    parts = now["latency"]
    assert shown["latency"][:3] == [
        [
            part,
            *(
                _duration(parts[part][of]) if parts[part]["count"] else "\N{EN DASH}"
                for of in ("median", "p99", "p999", "max")
            ),
        ]
        for part in ("waiting", "service", "total")
    ]
    waiting = group["waiting"] + group["on_disk"]
    shares = [key["waiting"] / waiting for key in group["hottest_keys"]]
    assert [key[:2] for key in shown["keys"]] == [
        [f"{key['waiting']:,}", f"{_whole(100 * share)} %"]
        for key, share in zip(group["hottest_keys"], shares, strict=True)
    ]
    assert shown["bars"] == [f"{_whole(100 * min(1, share))}%" for share in shares]
    left = source["bytes_total"] - source["bytes_read"]
    letters = {0: "", 1: "1 dead letter"}.get(flat["routed"], f"{flat['routed']:,} dead letters")
    assert shown["stages"] == [
        ["", f"{source['in']:,} read · {_bytes(left)} left"],
        [
            f"{distinct['waiting']:,} of {bounds[2]:,} wait",
            f"{distinct['skipped']:,} skipped" if distinct["skipped"] else "",
        ],
        [
            f"{group['waiting']:,} of {group['bound']:,} wait",
            " · ".join(
                [
                    *([f"{group['on_disk']:,} on disk"] if group["on_disk"] else []),
                    *([f"{group['groups']:,} keys"] if group["groups"] else []),
                ]
            ),
        ],
        ["", ""],
        [f"{flat['in_flight']} of {flat['limit']} calls", letters],
        [f"{each['waiting']:,} of {bounds[6]:,} wait", ""],
        ["", ""],
    ]
    used = [
        (0.0, False),
        (distinct["waiting"] / (bounds[2] or 1), True),
        (group["waiting"] / group["bound"], True),
        (0.0, False),
        (flat["in_flight"] / flat["limit"], True),
        (each["waiting"] / (bounds[6] or 1), True),
        (0.0, False),
    ]
    assert shown["levels"] == [
        (_level_of_calls if place == 4 else _level)(share) if is_shown else ""
        for place, (share, is_shown) in enumerate(used)
    ]
    assert [float(fill.rstrip("%") or 0) for fill in shown["fills"]] == pytest.approx(
        [100 * share for share, _ in used], abs=0.1
    )
    reason = flat["limit_reason"]
    if reason.startswith("probing"):
        reason += " (tries a few calls more or fewer, and keeps what does better)"
    assert shown["why"] == [f"limit {flat['limit']}: {reason}"]


def _compare_ages(shown: dict[str, Any], now: dict[str, Any], then: dict[str, Any]) -> None:
    """Time goes on between the two."""
    assert _is_between(shown["totals"][4], now["seconds"], then["seconds"])
    done, left = shown["totals"][5].removesuffix(" left").split(", ")
    assert done == f"{int(100 * now['progress'])} %"
    rest = (1 - now["progress"]) / now["progress"]
    assert _is_between(left, now["seconds"] * rest, then["seconds"] * rest)
    keys = [one["stages"][2]["hottest_keys"] for one in (now, then)]
    for (_, _, age), before, after in zip(shown["keys"], *keys, strict=True):
        assert _is_between(age, before["age"], after["age"])


def _compare_rates(shown: dict[str, Any], seconds: list[Second]) -> None:
    times = [0.0, *(second.sample.at for second in seconds)]
    for second, time in zip(seconds, times[1:], strict=True):
        assert time <= second.before["seconds"]
    for earlier, later in pairwise(seconds):
        assert earlier.after["seconds"] <= later.sample.at
    spans = [later - earlier for earlier, later in pairwise(times)]

    def speeds(of: Any) -> list[float]:
        counts = [0, *(of(second.before) for second in seconds)]
        gained = [later - earlier for earlier, later in pairwise(counts)]
        return [count / span for count, span in zip(gained, spans, strict=True)]

    arrows = [
        # What operators inside groups make is counted where it leaves the groups.
        speeds(lambda numbers, number=number: numbers["stages"][number - 1]["sent"])[-1]
        for number in (1, 2, 4, 4, 5)
    ]
    assert shown["rates"] == [f"{_rate(speed)}/s" for speed in arrows]
    arrived, finished = speeds(lambda numbers: numbers["in"]), speeds(lambda n: n["finished"])
    assert shown["totals"][0] == f"{_rate(finished[-1])}/s"
    top = max(1, *arrived, *finished)
    assert shown["highest"] == f"highest {_rate(top)}/s"
    for curve, values in ((shown["arrived"], arrived), (shown["finished"], finished)):
        # From the start on, at the speed of the first second.
        heights = [(126 - y) / 120 * top for _, y in curve]
        assert heights == pytest.approx([values[0], *values], abs=top / 1_000)
        step = 600 / max(10, len(values))
        assert [600 - x for x, _ in curve] == pytest.approx(
            [step * back for back in range(len(values), -1, -1)], abs=0.1
        )


def _compare_limits(shown: dict[str, Any], stages: list[dict[str, Any]]) -> None:
    (limits,), (used,) = shown["limits"], shown["used"]
    top = max(*(stage["limit"] for stage in stages), *(stage["in_flight"] for stage in stages))
    for heights, of in (([y for _, y in limits], "limit"), (used, "in_flight")):
        assert [(32 - y) / 30 * top for y in heights] == pytest.approx(
            [stage[of] for stage in stages], abs=top / 100
        )


def _compare_heat(shown: dict[str, Any], seconds: list[Second]) -> None:
    """The rows of the map add up to the counts of the statistics, and their percentiles are in the
    rows that say so; each cell is as strong as its row says."""
    samples = [second.sample for second in seconds]
    totals = [second.before["latency"]["total"] for second in seconds]
    counts = [sum(sample.heat.values()) for sample in samples]
    assert list(accumulate(counts)) == [total["count"] for total in totals]
    rows = [0] * len(LATENCIES)
    for sample in samples:
        for row, n in sample.heat.items():
            rows[row] += n
    below = list(accumulate(rows, initial=0))
    total = totals[-1]
    for of, share in (("median", 0.5), ("p75", 0.75), ("p95", 0.95), ("max", 1.0)):
        if total["count"]:
            rank = max(1, int(share * total["count"] + 0.5))
            # The statistics show the upper end of a cell of a histogram, the map the lower one.
            assert any(
                below[row] < rank <= below[row + 1]
                for row in {_row(total[of]), _row(total[of] * 0.998)}
            ), (of, total, rows)
    used = [row for row, n in enumerate(rows) if n]
    low = max(0, used[0] - 1) if used else 6
    high = min(len(LATENCIES) - 1, used[-1] + 1) if used else 15
    assert shown["scale"] == [
        _duration(LATENCIES[row]) for row in (high, (high + low + 1) // 2, low)
    ]
    recent = [0] * len(LATENCIES)
    for sample in samples:
        if sample.at > samples[-1].at - 60:
            for row, n in sample.heat.items():
                recent[row] += n
    if not any(recent):
        assert shown["latency"][3:] == []
    else:
        upto = list(accumulate(recent))
        places = [
            next(row for row, n in enumerate(upto) if n >= share * upto[-1] - 1e-9)
            for share in (0.5, 0.99, 0.999, 1.0)
        ]
        assert shown["latency"][3:] == [
            ["total, last minute", *(f"≤ {_duration(LATENCIES[row + 1])}" for row in places)]
        ]
    heat = shown["heat"]
    assert (heat["width"], heat["height"]) == (max(10, len(samples)), high - low + 1)
    most = log1p(max([1, *(n for sample in samples for n in sample.heat.values())]))
    assert sorted(heat["cells"]) == sorted(
        [heat["width"] - len(samples) + at, row - low, _whole(30 + 225 * log1p(n) / most)]
        for at, sample in enumerate(samples)
        for row, n in sample.heat.items()
    )
    last = samples[-1].latency
    assert shown["median"] == (
        "Latency of the last minutes"
        if last is None
        else f"Latency; in the last second the median was {_duration(last[0])}"
    )


def _row(seconds: float) -> int:
    return max(0, bisect_right(LATENCIES, seconds) - 1)


# Numbers as the page writes them.


def _whole(number: float) -> int:
    return int(number + 0.5)


def _rate(number: float) -> str:
    if number == 0 or number >= 99.5:
        return f"{_whole(number):,}"
    decimals = max(0, 1 - floor(log10(float(f"{number:.1e}"))))
    return f"{number:.{decimals}f}"


def _part(n: int, whole: int) -> str:
    if not whole:
        return ""
    return f"{100 * n / whole:.2f} %" if 0 < n / whole < 0.01 else f"{_whole(100 * n / whole)} %"


def _level(share: float) -> str:
    name = "full" if share >= 0.9 else "busy" if share >= 0.5 else "calm"
    return f"{name} · {_whole(100 * share)} %"


def _level_of_calls(share: float) -> str:
    return f"{'at its limit' if share >= 0.9 else 'calm'} · {_whole(100 * share)} %"


def _bytes(n: int) -> str:
    return f"{n} B" if n < 1_000 else f"{float(f'{n / 1000:.3g}'):.{3 - len(str(n // 1000))}f} kB"


def _duration(seconds: float) -> str:
    """Three digits, in the unit that fits."""
    if not seconds:
        return "0"
    for unit, size in (("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        if seconds < 1_000 * size or unit == "s":
            return f"{float(f'{seconds / size:.3g}'):g} {unit}"
    raise AssertionError


def _is_between(text: str, low: float, high: float) -> bool:
    """Whether a duration is one between these two."""
    number, unit = text.split()
    size = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3_600.0}[unit]
    # Half of its last digit.
    slack = 0.5 if "." not in number else 0.5 * 10.0 ** -len(number.partition(".")[2])
    if unit not in ("min", "h"):
        slack = max(slack, float(f"{float(number):.0e}") / 200)
    return low - slack * size <= float(number) * size <= high + slack * size
