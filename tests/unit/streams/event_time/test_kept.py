"""The watermark as it is stored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.streams.event_time.kept import KeptPartition


def marked(kept: KeptPartition, *, waits: bool) -> float:
    return float(kept.mark(30.0, 25.0, lambda root, event: waits)["greatest"])


def test_a_list_that_a_commit_would_have_done_waits_again_if_the_commit_is_put_off() -> None:
    kept = KeptPartition(None)
    nothing: Any = None
    list_ = kept.new_list(nothing, 10.0, 5.0, SimpleNamespace(left=0), [])
    event: Any = object()
    list_.held.append((nothing, event))
    assert marked(kept, waits=False) == 30
    # That commit was not made, and the next one begins without its events.
    assert marked(kept, waits=True) == 10
    assert marked(kept, waits=False) == 30
    kept.written()
    assert marked(kept, waits=True) == 30
