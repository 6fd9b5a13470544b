"""examples/prompts.py is killed again and again, at any instant, and run again."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HOME = Path(__file__).parents[2]
EXAMPLE = HOME / "examples" / "prompts.py"
PROMPTS = 1_000
AT_ONCE = 16  # that the provider works on
KILLS = 6
PATIENCE = 60.0

PROVIDER = """
import asyncio
import sys

from aiohttp import web

from examples.provider import Provider, Quota

quota = Quota(requests=1_000, tokens=60_000, per=1, at_once=int(sys.argv[1]), seconds=0.02)


async def main():
    runner = web.AppRunner(Provider(quota, sys.argv[2]).application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
"""


@contextmanager
def provider(log: Path) -> Iterator[str]:
    """The URL of a provider in its own process, whose minute is a second."""
    command = [sys.executable, "-c", PROVIDER, str(AT_ONCE), str(log)]
    with subprocess.Popen(command, cwd=HOME, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The lines that are whole; a kill may cut the last one off."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def test_no_prompt_that_has_its_answer_is_asked_again_after_a_kill(
    tmp_path: Path, run_seed: int
) -> None:
    draw = random.Random(run_seed)
    prompts, answers, log = (
        tmp_path / name for name in ("prompts.jsonl", "answers.jsonl", "log.jsonl")
    )
    every = {f"say {n}": f"p{n}" for n in range(PROMPTS)}
    prompts.write_text(
        "".join(json.dumps({"id": name, "prompt": text}) + "\n" for text, name in every.items())
    )

    with provider(log) as url:
        command = [
            *(sys.executable, "-m", "penstock", "run", str(EXAMPLE), "--report", "none", "--"),
            *(str(prompts), str(answers), "--url", url, "--per", "1", "--max-tokens", "16"),
            *("--requests", "2000", "--tokens", "200000"),
        ]
        for kill in range(KILLS):
            before = lines_of(answers)
            running = subprocess.Popen(command)
            deadline = time.monotonic() + PATIENCE
            while len(lines_of(answers)) == len(before):
                assert running.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.005)
            time.sleep(draw.random() * 0.1)
            running.send_signal(signal.SIGKILL)
            running.wait()
            answered = {line["id"] for line in lines_of(answers)}
            # The provider has logged what it answered; what was under way it answers to nobody.
            known = len(lines_of(log))
            again = subprocess.Popen(command)
            time.sleep(draw.random() * 0.5)
            again.send_signal(signal.SIGKILL)
            again.wait()
            asked = {every[line["prompt"]] for line in lines_of(log)[known:]}
            assert not asked & answered, (run_seed, kill)

        subprocess.run(command, check=True, timeout=300)

    names = Counter(line["id"] for line in lines_of(answers))
    assert names == Counter(every.values())
    served = Counter(line["prompt"] for line in lines_of(log) if line["status"] == 200)
    assert set(served) == set(every)
    # What was asked again was under way at a kill.
    assert served.total() - PROMPTS <= 2 * KILLS * AT_ONCE
    print(f"{served.total() - PROMPTS} of {PROMPTS} prompts asked again after {2 * KILLS} kills")
