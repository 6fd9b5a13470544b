"""The measurements, next to their bounds."""

from __future__ import annotations

from benchmarks.temporal.counts import beside_sql, count_a_million
from benchmarks.temporal.learning import learn_from_two_thousand_traces
from benchmarks.temporal.monitors import (
    add_to_a_pipeline,
    compile_formulas,
    look_up_a_million,
)
from benchmarks.temporal.workflows import check_a_large_workflow

__all__ = ["table"]


def table() -> None:
    """Print it."""
    what, rate = look_up_a_million()
    print(f"  {rate:6.2f} million events/s, at least 1.5   {what}")
    for what, took in add_to_a_pipeline():
        print(f"  {took:6.2f} us an event, at most 0.5   {what}")
    for what, took in compile_formulas():
        print(f"  {took:6.2f} s, at most 1   {what}")
    for what, took, most in count_a_million():
        print(f"  {took:6.2f} s, at most {most}   {what}")
    what, times = beside_sql()
    print(f"  {times:6.0f} times as quick as SQL, at least 100   {what}")
    for what, took in check_a_large_workflow():
        print(f"  {took:6.2f} s, at most 10   {what}")
    for what, took in learn_from_two_thousand_traces():
        print(f"  {took:6.2f} s, at most 10   {what}")
