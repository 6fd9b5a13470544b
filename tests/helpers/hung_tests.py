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
        files = self.assigned_work[node]
        left = [(tests, name) for tests in files.values() for name in tests if not tests[name]]
        if not left:
            return super().remove_node(node)
        tests, ended = left[0]
        tests[ended] = True
        # A process to which files without tests are given waits for more, and all others for it.
        for file in [name for name, tests in files.items() if all(tests.values())]:
            del files[file]
        super().remove_node(node)
        return ended

    def _reschedule(self, node: WorkerController) -> None:
        # One that takes the place of another may not have collected the tests yet.
        if node not in self.registered_collections:
            return
        super()._reschedule(node)
        # A process runs a test when it knows which one is next, or that none is.
        if self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)
