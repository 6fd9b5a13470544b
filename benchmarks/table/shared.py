"""The location and the content of the queue."""

from __future__ import annotations

import json
import os

__all__ = ["URL", "payloads"]

# The figure passes it to the processes that it starts.
URL = os.environ.get("BENCHMARK_DATABASE", "")

_KEYS = 500


def payloads(count: int) -> list[str]:
    return [
        json.dumps({"id": n, "client": f"client-{n % _KEYS}", "amount": n * 0.01})
        for n in range(count)
    ]
