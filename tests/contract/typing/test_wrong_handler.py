"""What mypy, which names the first of several overloads, reports for a wrong handler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).parents[3]
PIPELINE = """
from collections.abc import AsyncIterator

from penstock import adaptive_flat_map
from penstock import Flowable


async def work(number: int) -> str:
    return str(number)


async def many(number: int) -> AsyncIterator[str]:
    yield str(number)


def build(words: Flowable[bytes]) -> None:
    words.pipe(adaptive_flat_map({handler}))
"""


@pytest.mark.parametrize("handler", ["work", "many"])
def test_the_error_of_an_async_handler_says_what_it_should_take_and_that_it_is_async(
    handler: str, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.py"
    file.write_text(PIPELINE.format(handler=handler))
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", str(file)]
    checked = subprocess.run(command, cwd=HOME, capture_output=True, text=True)
    assert 'expected "Callable[[bytes], Awaitable[str] | AsyncIterator[str]]"' in checked.stdout
