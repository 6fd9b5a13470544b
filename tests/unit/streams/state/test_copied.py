"""Backends with a copy read what is in it of the partitions that are here."""

from __future__ import annotations

from pathlib import Path

from penstock.streams.state.copied import Copied
from penstock.streams.state.copy import Copy


def test_nothing_is_read_of_a_copy_that_is_still_being_opened(tmp_path: Path) -> None:
    backend = Copied(Copy(str(tmp_path / "states"), "NATS"))
    assert backend.read("counts", [b'"a"']) == []
    assert backend.due("counts", 0.0, 1.0, 1) == []
    assert backend.mark("t/0") is None
    assert list(backend.scan("counts")) == []
    assert backend.size("counts") == (0, 0)
