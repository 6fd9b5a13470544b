"""``python -m benchmarks.temporal``: what was measured, next to its bounds."""

from __future__ import annotations

from benchmarks.temporal.counts import count_a_million
from benchmarks.temporal.monitors import (
    add_to_a_pipeline,
    compile_formulas,
    look_up_a_million,
)
from benchmarks.temporal.workflows import check_a_large_workflow


def main() -> None:
    what, rate = look_up_a_million()
    print(f"{rate:6.2f} million events/s of 1.5   {what}")
    for what, took in add_to_a_pipeline():
        print(f"{took:6.2f} us an event of 0.5   {what}")
    for what, took in compile_formulas():
        print(f"{took:6.2f} s of 1   {what}")
    what, took = count_a_million()
    print(f"{took:6.2f} s of 3   {what}")
    for what, took in check_a_large_workflow():
        print(f"{took:6.2f} s of 10  {what}")


main()
