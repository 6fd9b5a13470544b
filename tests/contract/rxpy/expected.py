"""What `make test-rx` expects: the tests of RxPY that are not the same with demand, and why."""

from __future__ import annotations

__all__ = ["DIFFERENT", "FEWEST_SAME"]

FEWEST_SAME = 757
"""Of the 1,079 tests of reactivex 6.1 that are judged; see docs/evidence.md."""

_SCHEDULER = "it asks for the scheduler that it gave to subscribe: a stream stays on its loop"

DIFFERENT = {
    "test_pairwise.py::TestPairwise::test_pairwise_forwards_scheduler_to_source": _SCHEDULER,
    "test_marbles.py::TestToMarbles::test_to_marbles_forwards_scheduler_to_source": _SCHEDULER,
    "test_delaywithmapper.py::TestDelayWithMapper::"
    "test_delay_with_mapper_forwards_scheduler_to_subscription_delay": _SCHEDULER,
}
"""Why each delivers the same values at the same times, and is not the same, by file and name."""
