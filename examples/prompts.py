"""Many prompts to a provider of language models, as fast as it allows.

    export PROVIDER_KEY=...
    penstock run examples/prompts.py -- prompts.jsonl answers.jsonl --url https://host/v1 --model M

Each line of the prompts has an id of its own and a prompt, each line of the answers the id and the
answer, or the error if the provider refuses that prompt:

    {"id": "p1", "prompt": "What is a penstock?"}
    {"id": "p1", "answer": "A gated pipe ...", "tokens": 31}

`--requests` and `--tokens` are what the provider allows each minute. A prompt is charged by its
length and `--max-tokens` when its request begins, and what the answer says it used corrects that.
How many requests run at once is found by the pipeline. A request that is refused (429) is repeated,
and no other one begins before the time that the provider asks for (`Retry-After`) is over.

Run the same command again after a kill, and it continues: no prompt that has its answer in the file
is asked again; one that was under way is. A line that is not a prompt, or one that costs more than
the provider allows in a minute, goes to `answers.jsonl.failed`. The provider has the interface of
OpenAI, as most have. Needs aiohttp; `examples/provider.py` is a provider to try it with.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp

from penstock import (
    Backoff,
    RateLimit,
    Shared,
    adaptive_flat_map,
    dead_letters,
    ops,
    rate_limit,
    read_jsonl,
    retry,
    route,
    using,
    write_jsonl,
)

Answer = dict[str, Any]

# The statuses for a request that is wrong by itself: the next one may be right.
WRONG = (400, 413, 422)
# Those for a wrong key, address or model: no request will be right.
HOPELESS = (401, 403, 404)
# Those of a provider that is too busy, or of one that refuses more requests for now.
BUSY = (429, 503, 529)

# More answers than the sink writes before the position in the prompts is saved.
UNSAVED = 4096


@dataclass(frozen=True, slots=True)
class Prompt:
    id: str | int
    text: str

    @staticmethod
    def of(line: bytes) -> Prompt:
        fields = json.loads(line)
        name, text = fields["id"], fields["prompt"]
        if not isinstance(name, str | int) or not isinstance(text, str):
            raise TypeError("an id is a text or a whole number, and a prompt is a text")
        return Prompt(name, text)


class Refused(Exception):
    """The provider has answered, but not the prompt."""

    def __init__(self, status: int, text: str, retry_after: str | None) -> None:
        super().__init__(f"{status}: {text[:200]}")
        self.status = status
        self.retry_after = retry_after


class NotAllowed(BaseException):
    """No prompt can be answered. Not an Exception, which would be tried again: it stops the run."""


def overload(error: Exception) -> bool | float:
    """Whether the provider is overloaded, and for how many seconds it wants to be left alone."""
    if not isinstance(error, Refused) or error.status not in BUSY:
        return False
    try:
        return max(0.0, float(error.retry_after or ""))
    except ValueError:
        return True  # without a time, or until a date


class Provider:
    """One model of a provider: what it allows, and how it is asked."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._url = f"{options.url.rstrip('/')}/chat/completions"
        self._model = options.model
        self._max_tokens = options.max_tokens
        self.requests = RateLimit(
            options.requests, per=options.per, burst=max(1, options.requests // 10)
        )
        self.tokens = RateLimit(options.tokens, per=options.per, burst=options.tokens)
        # One for all stages that ask this model, here one.
        self.at_once = Shared()

    def estimate(self, prompt: Prompt) -> int:
        """The most tokens that a request may use: what it counts as until it is answered."""
        return len(prompt.text) // 4 + self._max_tokens

    def session(self) -> aiohttp.ClientSession:
        # Not an argument, which others on the machine can see.
        key = os.environ.get("PROVIDER_KEY")
        return aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {key}"} if key else None,
            connector=aiohttp.TCPConnector(limit=0),  # the pipeline limits the calls
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def ask(self, session: aiohttp.ClientSession, prompt: Prompt) -> Answer:
        message = {"role": "user", "content": prompt.text}
        body = {"model": self._model, "messages": [message], "max_tokens": self._max_tokens}
        async with session.post(self._url, json=body) as response:
            if response.status != 200:
                return self._refused(prompt, response, await response.text())
            answer = await response.json()
        used: int = answer["usage"]["total_tokens"]
        self.tokens.charge(used - self.estimate(prompt))
        text: str = answer["choices"][0]["message"]["content"]
        return {"id": prompt.id, "answer": text, "tokens": used}

    def _refused(self, prompt: Prompt, response: aiohttp.ClientResponse, text: str) -> Answer:
        if response.status in WRONG:
            self.tokens.charge(-self.estimate(prompt))
            return {"id": prompt.id, "error": f"{response.status}: {text[:200]}"}
        if response.status in HOPELESS:
            raise NotAllowed(f"{response.status} from {self._url}: {text[:200]}")
        # Refused requests count, too, and only the first attempt has passed the limit.
        self.requests.charge(1)
        raise Refused(response.status, text, response.headers.get("Retry-After"))


def unanswered(path: str) -> Callable[[Prompt], bool]:
    """Whether a prompt has no answer yet, as far as the position does not say so.

    The position is saved after the answers are written. A kill between the two leaves answers at
    the end of the file whose prompts are read again.
    """
    ids: set[Any] = set()
    with suppress(FileNotFoundError), open(path, encoding="utf-8") as answers:
        for line in deque(answers, UNSAVED):
            # The last line may have been cut off.
            with suppress(ValueError):
                ids.add(json.loads(line)["id"])
    return lambda prompt: prompt.id not in ids


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Many prompts to a provider of language models.")
    parser.add_argument("prompts", help="a file of JSON lines, each with an id and a prompt")
    parser.add_argument("answers", help="a file of JSON lines, which is continued")
    parser.add_argument("--url", default="http://127.0.0.1:8766/v1", help="default: %(default)s")
    parser.add_argument("--model", default="default")
    parser.add_argument("--requests", type=int, default=60, help="each minute (%(default)s)")
    parser.add_argument("--tokens", type=int, default=20_000, help="each minute (%(default)s)")
    parser.add_argument("--max-tokens", type=int, default=256, help="of an answer (%(default)s)")
    parser.add_argument("--per", type=float, default=60.0, help="the seconds of a minute")
    return parser


options = arguments().parse_args()
provider = Provider(options)
failed = route(dead_letters(f"{options.answers}.failed"))
pipeline = (
    read_jsonl(
        options.prompts,
        decode=Prompt.of,
        on_bad_line=failed,
        position=f"{options.answers}.position",
    )
    .pipe(
        ops.filter(unanswered(options.answers)),
        rate_limit(provider.requests),
        rate_limit(provider.tokens, cost=provider.estimate, on_error=failed),
        adaptive_flat_map(
            using(provider.session)(provider.ask),
            provider.at_once,  # finds by itself how many
            timeout=300,
            overload=overload,
            on_error=retry(10, Backoff(1.0, cap=60.0)),
        ),
    )
    .to(write_jsonl(options.answers, append=True))
)
