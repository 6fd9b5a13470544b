"""Say what latency is asked for, and count how it is kept.

Items:   accepts every event, and judges its waiting, service or total time as `latency_histogram`
         measures them. Events that fail or are dropped before do not come here.
Time:    O(1) for each event; nothing runs between events.
Memory:  three numbers for each of the 2,160 slices of ten seconds of the last six hours.
Demand:  unbounded: it accepts at once, and never slows the pipeline.
Ends:    with the stream; a slice that is not over then counts too.
Errors:  what `where` raises fails its event and stops the pipeline.

    source                               --1--2--3--|
    objective("total < 1s", share=0.9)   --k--k--m--|   k = kept, m = missed by now
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from penstock.streams.base.errors import BuildError
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import is_async, is_text, require_parameters
from penstock.streams.diagnostics.objective import SLICE, Budget, share_of, target_of
from penstock.streams.protocol.stage_info import StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.objective_stage import Asked, ObjectiveStage
from penstock.streams.stages.shown_arrow import check_stage, refuse_idle_stage
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed, Sink

__all__ = ["objective"]


@recorded
def objective(
    target: str,
    share: float,
    *,
    where: Callable[[Any], object] | None = None,
    stage: int | None = None,
    name: str | None = None,
    required: bool = False,
) -> Sink[Any]:
    """A sink that measures whether a `share` of the events, or of the time, is within a latency.

    `target` is "p99 < 50ms", "service p95 < 2s" or "waiting < 1s": a part (waiting, service, or
    total if none is named), a percentile, or both, and a time in us, ms, s, min or h. With a
    percentile each slice of ten seconds in which events came is good or bad, and the `share` is of
    these slices; without, it is of the events. `where` chooses the events of which this is asked,
    by their values. With `stage`, the number of a stage that calls a handler (as in `penstock
    draw`), the events are measured when they leave that stage. `name` is what pages, metrics and
    the report call it (None: the target). `required`: if it is missed, the exit status is 6.

    It is kept while at most 1 - share is bad. Its numbers, with burn rates over the last 5 and 30
    minutes, one hour and six, are among those of its stage in `running.statistics()`. Raises
    BadArgument for a target that cannot be read, and BuildError for a share that is not between 0
    and 1, two objectives of one name, and a stage that calls no handler.

    >>> from penstock import from_iterable, objective, run
    >>> report = run(from_iterable([1, 2]).to(objective("total < 1min", share=0.99)))
    >>> report.statistics["stages"][-1]["kept"]
    True
    """
    asked = target_of(target)
    exact = share_of(share)
    if where is not None:
        if not callable(where) or is_async(where):  # pyright: ignore[reportUnnecessaryComparison]
            raise BuildError(
                f"objective(where={where!r}): give a plain function of the value, such as "
                'lambda order: order["kind"] == "express"'
            )
        require_parameters(where, "objective(where=...)", 1)
    check_stage("objective", stage)
    if name is not None and not is_text(name):
        raise BuildError(f"objective(name={name!r}): give a text that is not empty")
    if not isinstance(required, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise BuildError(f"objective(required={required!r}): give True or False")
    called = name or " ".join(target.split())
    return _Objective(Asked(called, asked, float(share), where, stage, required), exact)


class _Objective(Sink[Any]):
    observes = True

    def __init__(self, asked: Asked, share: Fraction) -> None:
        self._asked = asked
        self._share = share
        self.reads_values = asked.where is not None
        of = "events" if asked.target.percentile is None else f"slices of {SLICE} s"
        at = "" if asked.stage is None else f" at stage {asked.stage}"
        self.info = StageInfo("objective", f"{asked.name}{at}, {asked.share:.10g} of {of}", 0)

    def check_beside(self, others: Sequence[Sink[Any]]) -> None:
        if any(
            isinstance(other, _Objective) and other._asked.name == self._asked.name
            for other in others
        ):
            raise BuildError(
                f"two objectives are called {self._asked.name!r}: give one of them another name="
            )

    def check_above(self, stages: Sequence[StageInfo]) -> None:
        refuse_idle_stage("objective", self._asked.stage, stages)

    def open(self, run: Run, closed: Closed) -> BaseSinkStage:
        budget = Budget(self._asked.target, self._share, run.now())
        return ObjectiveStage(run, closed, self._asked, budget)
