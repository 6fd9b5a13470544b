"""What `make test-rx` expects: the tests of RxPY that are not the same with demand, and why."""

from __future__ import annotations

__all__ = ["DIFFERENT", "FEWEST_SAME"]

FEWEST_SAME = 1006
"""Of the 1,081 tests of reactivex 6.1 that are judged; see docs/evidence.md."""

_SCHEDULER = "it asks for the scheduler that it gave to subscribe: a stream stays on its loop"
_UNREAD = "the operator fails as it begins, and then its source is not subscribed to at all"

DIFFERENT = {
    "test_concat.py::TestConcat::test_concat_forward_none_scheduler": _SCHEDULER,
    "test_concat.py::TestConcat::test_concat_forward_scheduler": _SCHEDULER,
    "test_delaywithmapper.py::TestDelayWithMapper::"
    "test_delay_with_mapper_forwards_scheduler_to_subscription_delay": _SCHEDULER,
    "test_marbles.py::TestToMarbles::test_to_marbles_forwards_scheduler_to_source": _SCHEDULER,
    "test_pairwise.py::TestPairwise::test_pairwise_forwards_scheduler_to_source": _SCHEDULER,
    "test_window.py::TestWindow::test_window_when_on_error": _UNREAD,
    "test_window.py::TestWindow::test_window_when_window_close_error": _UNREAD,
}
"""Why each is not the same, by file and name. The values, the errors and their times are."""
