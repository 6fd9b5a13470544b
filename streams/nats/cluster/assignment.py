"""Assigns partitions to workers, deterministically: every worker computes the same assignment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from hashlib import blake2b

__all__ = ["assign"]


def assign(partitions: int, workers: Collection[str]) -> dict[int, str]:
    """The worker of each partition, at most ceil(partitions / workers) for one.

    Rendezvous hashing with a capacity: few partitions move when a worker comes or goes. Source:
    D. Thaler and C. Ravishankar, "Using name-based mappings to increase hit rates", 1998.
    """
    most = -(-partitions // len(workers))
    load: Counter[str] = Counter()
    owners: dict[int, str] = {}
    for partition in range(partitions):
        for worker in sorted(workers, key=lambda worker: _weight(partition, worker)):
            if load[worker] < most:
                owners[partition] = worker
                load[worker] += 1
                break
    return owners


def _weight(partition: int, worker: str) -> bytes:
    return blake2b(f"{partition}|{worker}".encode(), digest_size=8).digest()
