"""A worker of `benchmarks.cluster.work`; arguments: servers, pool, and CPU seconds per job."""

from __future__ import annotations

import os
import sys
from typing import Any

from benchmarks.cluster.burn import burn
from penstock import WorkPool, run

PROCESS = os.getpid()
url, name, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])


def work(job: Any) -> int:
    """Return who did it."""
    burn(seconds)
    return PROCESS


if __name__ == "__main__":
    run(WorkPool(url, name, lease=5).work(work))
