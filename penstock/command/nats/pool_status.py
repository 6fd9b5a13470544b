"""The text of `penstock status` for a work pool."""

from __future__ import annotations

from penstock.command.output import counted
from penstock.streams.work_pulling.view import Epic, PoolView

__all__ = ["pool_as_text"]


def pool_as_text(view: PoolView) -> str:
    """A few lines."""
    letters = counted(view.letters, "dead letter")
    queue = f"  parcels of jobs: {view.waiting:,} in the queue, {view.held:,} at workers"
    epic = view.epic
    if epic is None:
        return "\n".join([f"work pool {view.name}: no epic under way, {letters}", queue, ""])
    rate = epic.done / epic.seconds if epic.seconds else 0.0
    lines = [
        f"work pool {view.name}: epic {epic.epic} under way for {epic.seconds:,.0f} s, "
        f"{counted(epic.done, 'job')} done ({rate:,.0f}/s), {epic.failed:,} failed, {epic.out:,} "
        f"out, {letters}",
        f"  {counted(epic.workers, 'worker')} with room for {counted(epic.capacity, 'job')}"
        + _use(epic),
        queue,
        "",
    ]
    return "\n".join(lines)


def _use(epic: Epic) -> str:
    """How busy the workers are, and whether more or fewer of them would pay."""
    if epic.busy is None:
        return ""
    said = f", {epic.busy:.0%} busy"
    if epic.gain is not None:
        said += f"; the last change of their number brought {epic.gain:.0%} of a worker's share"
    if epic.pays is not None and epic.pays > epic.workers:
        said += "; another would pay"
    elif epic.pays is not None and epic.pays < epic.workers:
        said += f"; {epic.pays} would do"
    return said
