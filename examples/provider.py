"""A stand-in for a provider of language models, to try `examples/prompts.py` with.

    python -m examples.provider [--port 8766] [--requests 60] [--tokens 20000] [--at-once 8]

It answers `POST /v1/chat/completions` with the words of the prompt in reverse, after a fraction of
a second. Like the real ones it allows a number of requests and of tokens each minute, counts a
request by its length and its `max_tokens` until it is answered, then by what was used, and works on
some requests at once; beyond that it answers 429 with a `Retry-After`. It needs aiohttp.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

from aiohttp import web


@dataclass(frozen=True)
class Quota:
    """What is allowed each `per` seconds, how many requests at once, and how long one takes."""

    requests: float = 60
    tokens: float = 20_000
    per: float = 60.0
    at_once: int = 8
    seconds: float = 0.2


class Allowance:
    """What is left of an amount for each period: all of it at first, regained evenly."""

    def __init__(self, amount: float, per: float) -> None:
        self._most = self._left = amount
        self._gain = amount / per
        self._at = time.monotonic()

    def lacks(self, amount: float) -> float:
        """Seconds until so much is left; 0 if it is."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._gain)
        self._at = now
        return max(0.0, (amount - self._left) / self._gain)

    def use(self, amount: float) -> None:
        self._left -= amount


class Provider:
    """The service. `log` is the path of a file that gets a line for each request."""

    def __init__(self, quota: Quota, log: str | None = None) -> None:
        self._quota = quota
        self._requests = Allowance(quota.requests, quota.per)
        self._tokens = Allowance(quota.tokens, quota.per)
        self._at_work = 0
        self._log = log

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_post("/v1/chat/completions", self._complete)
        return application

    async def _complete(self, request: web.Request) -> web.Response:
        asked = await request.json()
        prompt: str = asked["messages"][-1]["content"]
        if not prompt:
            return self._answer(prompt, 400, {"error": {"message": "the prompt is empty"}})
        expected = len(prompt) // 4 + asked["max_tokens"]
        wait = max(self._requests.lacks(1), self._tokens.lacks(expected))
        if self._at_work >= self._quota.at_once:
            wait = max(wait, self._quota.seconds / 2)
        if wait:
            refusal = {"error": {"message": "rate limit reached"}}
            return self._answer(prompt, 429, refusal, {"Retry-After": f"{wait:.3f}"})
        self._requests.use(1)
        self._tokens.use(expected)
        self._at_work += 1
        try:
            await asyncio.sleep(self._quota.seconds)
        finally:
            self._at_work -= 1
        words = prompt.split()[: asked["max_tokens"]]
        used = len(prompt) // 4 + len(words)
        self._tokens.use(used - expected)
        message = {"role": "assistant", "content": " ".join(reversed(words))}
        usage = {"total_tokens": used}
        return self._answer(prompt, 200, {"choices": [{"message": message}], "usage": usage})

    def _answer(
        self,
        prompt: str,
        status: int,
        answer: dict[str, Any],
        headers: dict[str, str] | None = None,
    ) -> web.Response:
        if self._log is not None:
            with open(self._log, "a", encoding="utf-8") as log:
                log.write(json.dumps({"prompt": prompt, "status": status}) + "\n")
        return web.json_response(answer, status=status, headers=headers)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A stand-in for a provider of language models.")
    parser.add_argument("--port", type=int, default=8766)
    parser.add_argument("--requests", type=float, default=60, help="each minute")
    parser.add_argument("--tokens", type=float, default=20_000, help="each minute")
    parser.add_argument("--per", type=float, default=60.0, help="the seconds of a minute")
    parser.add_argument("--at-once", type=int, default=8, help="requests")
    parser.add_argument("--seconds", type=float, default=0.2, help="that an answer takes")
    parser.add_argument("--log", help="a file that gets a line for each request")
    options = parser.parse_args(arguments)
    quota = Quota(options.requests, options.tokens, options.per, options.at_once, options.seconds)
    application = Provider(quota, options.log).application()
    web.run_app(application, host="127.0.0.1", port=options.port)


if __name__ == "__main__":
    main()
