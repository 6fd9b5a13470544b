"""The example over real sockets, with a provider in this process whose minute is a second."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from aiohttp import web

from examples.provider import Allowance, Provider, Quota
from penstock import RateLimit, Report
from penstock.command.pipelines.load import load_module

EXAMPLE = Path(__file__).parents[3] / "examples" / "prompts.py"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "prompts", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def charges(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What is charged after a request has begun."""
    found: list[float] = []
    charge = RateLimit.charge

    def recorded(limit: RateLimit, cost: float) -> None:
        found.append(cost)
        charge(limit, cost)

    monkeypatch.setattr(RateLimit, "charge", recorded)
    return found


def loaded(url: str = "http://127.0.0.1:9/v1", *options: str) -> ModuleType:
    sys.modules.pop("prompts", None)
    arguments = ["prompts.jsonl", "answers.jsonl", "--url", url, "--per", "1", *options]
    return load_module(str(EXAMPLE), arguments, "pipeline")


def ask(quota: Quota, *options: str, path: str = "v1") -> Report:
    """Run the example with a provider in this loop, which logs into log.jsonl."""

    async def story() -> Report:
        runner = web.AppRunner(Provider(quota, "log.jsonl").application())
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            report: Report = await loaded(f"http://{host}:{port}/{path}", *options).pipeline.run()
            return report
        finally:
            await runner.cleanup()

    return asyncio.run(story())


def write(prompts: list[Any]) -> list[Any]:
    Path("prompts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in prompts))
    return prompts


def lines_of(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def asked(status: int) -> Counter[str]:
    """How often each prompt had this answer of the provider."""
    return Counter(line["prompt"] for line in lines_of("log.jsonl") if line["status"] == status)


def test_every_prompt_is_answered_once_although_the_provider_allows_less_than_we_think(
    charges: list[float],
) -> None:
    prompts = write([{"id": n, "prompt": f"say {n} " * (1 + n % 5)} for n in range(120)])
    quota = Quota(requests=100, tokens=6_000, per=1, at_once=3, seconds=0.01)
    report = ask(quota, "--requests", "5000", "--tokens", "500000", "--max-tokens", "40")
    assert report.exit_status == 0
    answers = {answer["id"]: answer["answer"] for answer in lines_of("answers.jsonl")}
    assert len(lines_of("answers.jsonl")) == 120
    assert answers == {one["id"]: " ".join(reversed(one["prompt"].split())) for one in prompts}
    assert set(asked(200).values()) == {1}
    # A refused request counts as one, too.
    assert charges.count(1) == asked(429).total() > 0


def test_lines_that_can_never_be_asked_are_put_aside_and_the_rest_is_answered() -> None:
    write(
        [
            {"id": "good", "prompt": "say good"},
            {"id": "dear", "prompt": "x" * 9_000},
            {"id": "empty", "prompt": ""},
            {"prompt": "without an id"},
            {"id": "number", "prompt": 7},
            {"id": "late", "prompt": "say late"},
        ]
    )
    report = ask(Quota(per=1, seconds=0.01), "--tokens", "2000")
    answers = lines_of("answers.jsonl")
    assert [(line["id"], line["answer"]) for line in answers if "answer" in line] == [
        ("good", "good say"),
        ("late", "late say"),
    ]
    assert [line for line in answers if "answer" not in line] == [
        {"id": "empty", "error": '400: {"error": {"message": "the prompt is empty"}}'}
    ]
    failed = [(line["error"], line["stage"]) for line in lines_of("answers.jsonl.failed")]
    assert sorted(failed) == [
        ("BadLine", "stage 1 'read_jsonl'"),
        ("BadLine", "stage 1 'read_jsonl'"),
        ("CostTooHigh", "stage 4 'rate_limit'"),
    ]
    assert set(asked(200)) == {"say good", "say late"}
    assert report.exit_status == 3


def test_a_wrong_address_stops_the_run_at_once_and_no_prompt_is_done() -> None:
    prompts = write([{"id": n, "prompt": f"say {n}"} for n in range(3)])
    with pytest.raises(BaseException, match="404 from http://127") as raised:
        ask(Quota(per=1), path="v2")
    assert type(raised.value).__name__ == "NotAllowed"
    assert Path("answers.jsonl").read_text() == ""
    assert ask(Quota(per=1, seconds=0.01)).statistics["finished"] == len(prompts)


def test_a_second_run_asks_only_what_has_no_answer_wherever_the_position_is() -> None:
    prompts = write([{"id": f"p{n}", "prompt": f"say {n}"} for n in range(5)])
    # As after a kill between the write of answers and that of the position.
    whole = '{"id":"p1","answer":"1 say"}\n'
    Path("answers.jsonl").write_text(whole + '{"id":"p3","answer":"3 say"}\n{"id":"p4","ans')
    ask(Quota(per=1, seconds=0.01))
    assert set(asked(200)) == {"say 0", "say 2", "say 4"}
    lines = Path("answers.jsonl").read_text().splitlines()
    good = [json.loads(line) for line in lines if line.endswith("}")]
    assert sorted(line["id"] for line in good) == [one["id"] for one in prompts]
    Path("log.jsonl").unlink()
    assert ask(Quota(per=1)).statistics["in"] == 0
    assert not Path("log.jsonl").exists()


def test_each_call_corrects_what_it_was_charged(charges: list[float]) -> None:
    write([{"id": n, "prompt": "two words"} for n in range(20)])
    ask(Quota(100_000, 100_000, per=1, at_once=100, seconds=0.001), "--max-tokens", "200")
    # An answer may have 200 tokens, and has two.
    assert charges == [-198] * 20


@pytest.mark.parametrize(
    ("status", "after", "expected"),
    [
        (429, "12", 12.0),
        (503, "0.25", 0.25),
        (429, None, True),
        (529, "Wed, 21 Oct 2026 07:28:00 GMT", True),
        (429, "-3", 0.0),
        (429, "nan", 0.0),
        (500, "12", False),
        (401, None, False),
    ],
)
def test_the_time_that_the_provider_asks_for_is_kept(
    status: int, after: str | None, expected: Any
) -> None:
    module = loaded()
    given = module.overload(module.Refused(status, "", after))
    assert (type(given), given) == (type(expected), expected)
    assert module.overload(ValueError()) is False


def test_the_provider_of_the_tests_regains_its_quota_evenly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr("examples.provider.time.monotonic", lambda: now[0])
    left = Allowance(10, per=5)
    left.use(10)
    assert left.lacks(4) == 2
    now[0] = 2.0
    assert left.lacks(4) == 0
    now[0] = 99.0
    assert left.lacks(12) == 1
