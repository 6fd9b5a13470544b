"""The published orders of the job spreader, by the number of feeders."""

from __future__ import annotations

from typing import Any

from penstock.streams.testing import Probe

GROUPS = [["a1", "a2", "a3"], ["b1"], ["c1", "c2", "c3"]]
PUBLISHED = {
    1: "a1 a2 a3 b1 c1 c2 c3",
    2: "a1 b1 a2 c1 a3 c2 c3",
    3: "a1 b1 c1 a2 c2 a3 c3",
    4: "a1 b1 c1 a2 c2 a3 c3",
}


def read(source: Any, request: int = 2**63 - 1, **options: Any) -> Probe[Any]:
    probe = Probe[Any](request=request, **options)
    source.connect(probe)
    return probe
