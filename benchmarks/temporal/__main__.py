"""``python -m benchmarks.temporal``: seconds of the processor, next to their bounds."""

from __future__ import annotations

from benchmarks.temporal.counts import count_a_million
from benchmarks.temporal.workflows import check_a_large_workflow


def main() -> None:
    what, took = count_a_million()
    print(f"{took:6.2f} s of 3   {what}")
    for what, took in check_a_large_workflow():
        print(f"{took:6.2f} s of 10  {what}")


main()
