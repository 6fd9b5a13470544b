"""A worker of `benchmarks.cluster.work`; told of servers, pool, and CPU seconds for a job."""

from __future__ import annotations

import os
import sys
from time import thread_time
from typing import Any

from sources import WorkPool
from streams import run

PROCESS = os.getpid()
url, name, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])


def work(job: Any) -> int:
    """Use so much of the processor, whoever else uses it meanwhile; say who did it."""
    end = thread_time() + seconds
    while seconds and thread_time() < end:
        pass
    return PROCESS


if __name__ == "__main__":
    run(WorkPool(url, name, lease=5).work(work))
