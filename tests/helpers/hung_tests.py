"""A scheduling of pytest-xdist that does not run a test again in which a process has ended.

pytest ends the process of a test that takes too long (`faulthandler_timeout`). By itself
pytest-xdist gives such a test to the next process, with the others of its file, until it has
ended them all.
"""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class EachTestOnce(LoadFileScheduling):
    """A scheduling by files that reports a test whose process has ended, and goes on behind it."""

    def remove_node(self, node: WorkerController) -> str | None:
        """The test that `node` ran when it ended, None if it had no more."""
        for tests in self.assigned_work[node].values():
            for name, is_over in tests.items():
                if not is_over:
                    tests[name] = True
                    super().remove_node(node)
                    return name
        return super().remove_node(node)

    def _reschedule(self, node: WorkerController) -> None:
        # One that takes the place of another may not have collected the tests yet.
        if node in self.registered_collections:
            super()._reschedule(node)
