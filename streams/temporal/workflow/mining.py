"""Process mining: the graph of the steps that followed each other in the cases of a stream.

A case is what happened under one key, step by step. Its steps are counted, and how often one
followed directly upon another; with a workflow beside it, also which of that the workflow does not
allow; with rules, which cases break them.

Sources: van der Aalst, "Process mining: data science in action" (2016), for directly-follows graphs
and for conformance; Leemans, Poppe and Wynn, "Directly follows-based process mining" (ICPM 2019).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.streams.base.validation import is_count
from penstock.streams.temporal.workflow.following import Following, Runs
from penstock.streams.temporal.workflow.rule import Rule, conditions
from penstock.streams.temporal.workflow.workflow import Workflow, WorkflowError

__all__ = ["MAX_KEYS", "Breach", "Miner", "Traffic"]

MAX_KEYS = 1_000_000

# More different steps, or arcs, than a workflow has: the wrong field was named.
_MOST_STEPS = 1_000
_MOST_ARCS = 10_000

# The different beginnings of paths: beyond that, hardly two cases are alike.
_MOST_BEGINNINGS = 100_000

# The last steps of a case that a breach shows.
_RECENT = 16

Arc = tuple[str, str]


@dataclass(slots=True)
class Traffic:
    """How often a case took an arc, and whether the workflow has it; if it was forbidden, how often
    and for which case first."""

    drawn: bool
    count: int = 0
    forbidden: int = 0
    first: Any = None


@dataclass(frozen=True, slots=True)
class Breach:
    """The first case that broke a rule: its last steps, the number of the step that decided it,
    and whether it was the end of the stream instead."""

    key: Any
    steps: tuple[str, ...]
    index: int
    at_end: bool


class _Beginning:
    """The beginning of a path, shared by all cases that began so."""

    __slots__ = ("before", "further", "step")

    def __init__(self, before: _Beginning | None = None, step: str = "") -> None:
        self.before = before
        self.step = step
        self.further: dict[str, _Beginning] | None = None

    def steps(self) -> tuple[str, ...]:
        found: list[str] = []
        at = self
        while at.before is not None:
            found.append(at.step)
            at = at.before
        return tuple(reversed(found))


class _Case:
    __slots__ = ("count", "path", "recent", "runs", "step", "visited")

    def __init__(self, rules: int, path: _Beginning | None) -> None:
        self.step: str | None = None
        self.path = path
        self.count = 0
        self.visited: frozenset[str] = frozenset()
        self.recent: tuple[str, ...] = ()
        self.runs: list[Runs | None] = [frozenset()] * rules


class Miner:
    """Counts the steps of many cases; `add` one step at a time, then `end`.

    `steps`, `first` and `last` are how often each step happened, began a case and ended one; `arcs`
    is the traffic of each pair of steps. `broken` is how many cases broke each rule, and `breaches`
    the first of them.

    With a workflow, an arc is forbidden if the workflow lacks it or one of its steps, and each time
    that the conditions `through` and `not_through` of the step do not let the case come. A rule's
    own arcs are not asked: the case has taken its way.

    With `paths`, the cases of each different path are counted when they have ended.

    Memory: for each of at most `max_keys` cases about 600 bytes, which do not grow; beyond it
    the one that was used longest ago is forgotten, neither ended nor judged, and counted as
    `forgotten`; it begins anew if it comes again. Of the steps 1,000 different ones are counted by
    name, of the arcs 10,000; what else happens is counted as `other_steps` and `other_arcs`. With
    `paths` about 300 bytes for each different beginning of a path, of at most 100,000; cases whose
    path has others are counted as `other_paths`.
    """

    def __init__(
        self,
        workflow: Workflow | None = None,
        rules: Iterable[Rule] = (),
        *,
        max_keys: int = MAX_KEYS,
        paths: bool = False,
    ) -> None:
        if not is_count(max_keys):
            raise WorkflowError(f"max_keys={max_keys!r}: a whole number of at least 1 is needed")
        self.workflow = workflow
        self.events = self.cases = self.forgotten = self.other_steps = self.other_arcs = 0
        self.other_paths = self._beginnings = 0
        self._root = _Beginning() if paths else None
        self._ends: Counter[_Beginning] = Counter()
        self.steps: Counter[str] = Counter()
        self.first: Counter[str] = Counter()
        self.last: Counter[str] = Counter()
        self.arcs: dict[Arc, Traffic] = {}
        self.rules = tuple(rules)
        self.broken = [0] * len(self.rules)
        self.breaches: list[Breach | None] = [None] * len(self.rules)
        self._following = [Following(rule, workflow) for rule in self.rules]
        self._cases: OrderedDict[Hashable, _Case] = OrderedDict()
        self._max_keys = max_keys
        nodes = () if workflow is None else workflow.nodes.values()
        # Only these decide whether a case may come to a step.
        self._watched = frozenset(
            name for node in nodes for name in (*node.through, *node.not_through)
        )
        self._known: dict[str, str] = {}

    def add(self, key: Hashable, step: str) -> None:
        """The case `key` has come to `step`."""
        # One text for all events of a step.
        step = self._known.setdefault(step, step) if len(self._known) < _MOST_STEPS else step
        case = self._cases.get(key)
        if case is None:
            case = self._cases[key] = _Case(len(self.rules), self._root)
            self.cases += 1
            if len(self._cases) > self._max_keys:
                self._cases.popitem(last=False)
                self.forgotten += 1
        else:
            self._cases.move_to_end(key)
        self.events += 1
        case.count += 1
        self._count(self.steps, step)
        if case.step is None:
            self._count(self.first, step)
        else:
            self._travel(key, case, (case.step, step))
        case.step = step
        if case.path is not None:
            case.path = self._further(case.path, step)
        if step in self._watched:
            case.visited |= {step}
        if self.rules:
            case.recent = (*case.recent[1 - _RECENT :], step)
            self._follow(key, case, step)

    def end(self) -> None:
        """The stream has ended, and every case with it."""
        for key, case in self._cases.items():
            assert case.step is not None
            self._count(self.last, case.step)
            if case.path is not None:
                self._ends[case.path] += 1
            elif self._root is not None:
                self.other_paths += 1
            for at, (following, runs) in enumerate(zip(self._following, case.runs, strict=True)):
                if runs is not None and following.fails_at_end(runs):
                    self._break(at, key, case, at_end=True)
        self._cases.clear()

    def path_counts(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """The different paths of the cases that have ended, the most frequent first."""
        for path, count in self._ends.most_common():
            yield path.steps(), count

    def allows(self, path: Sequence[str]) -> bool:
        """Whether the workflow has these steps, one after another, and their conditions let a case
        come; without a workflow everything is allowed."""
        if self.workflow is None:
            return True
        nodes = self.workflow.nodes
        return all(step in nodes for step in path) and all(
            self._has((path[at - 1], path[at]))
            and conditions(nodes[path[at]], self._watched.intersection(path[:at]))
            for at in range(1, len(path))
        )

    def is_final(self, step: str) -> bool:
        """Whether the workflow has no step after this one; without a workflow every step may be the
        last."""
        if self.workflow is None:
            return True
        return step in self.workflow.nodes and not self.workflow.nodes[step].goto

    def unknown(self) -> list[str]:
        """The steps that happened and that the workflow lacks."""
        nodes = self.steps if self.workflow is None else self.workflow.nodes
        return [step for step in self.steps if step not in nodes]

    def never_taken(self) -> Iterator[Arc]:
        """The arcs of the workflow by `goto` that no case took."""
        for a, b, kind in () if self.workflow is None else self.workflow.arcs():
            if kind == "goto" and (a, b) not in self.arcs:
                yield a, b

    @property
    def found(self) -> bool:
        """Whether something happened that the workflow or a rule forbids."""
        return (
            any(self.broken)
            or bool(self.unknown())
            or any(traffic.forbidden for traffic in self.arcs.values())
        )

    def began(self, at: int) -> bool:
        """Whether a case came to an initial step of the rule `rules[at]`."""
        return self._following[at].began

    def _has(self, arc: Arc) -> bool:
        """Whether the workflow has the arc; without a workflow everything is allowed."""
        if self.workflow is None:
            return True
        a, b = arc
        return a in self.workflow.nodes and b in self.workflow.following(a)

    def _further(self, path: _Beginning, step: str) -> _Beginning | None:
        """The path with one step more; None if there are too many different ones."""
        if path.further is None:
            path.further = {}
        found = path.further.get(step)
        if found is None and self._beginnings < _MOST_BEGINNINGS:
            self._beginnings += 1
            found = path.further[step] = _Beginning(path, step)
        return found

    def _count(self, counts: Counter[str], step: str) -> None:
        if step in self._known:
            counts[step] += 1
        elif counts is self.steps:
            self.other_steps += 1

    def _travel(self, key: Hashable, case: _Case, arc: Arc) -> None:
        traffic = self.arcs.get(arc)
        if traffic is None:
            if len(self.arcs) >= _MOST_ARCS:
                self.other_arcs += 1
                return
            traffic = self.arcs[arc] = Traffic(self._has(arc))
        traffic.count += 1
        if self.workflow is None:
            return
        if not traffic.drawn or not conditions(self.workflow.nodes[arc[1]], case.visited):
            traffic.forbidden += 1
            if traffic.forbidden == 1:
                traffic.first = key

    def _follow(self, key: Hashable, case: _Case, step: str) -> None:
        for at, following in enumerate(self._following):
            runs = case.runs[at]
            if runs is not None:
                case.runs[at], breaks = following.after(runs, step)
                if breaks:
                    self._break(at, key, case, at_end=False)
                    # One breach for each case and rule.
                    case.runs[at] = None

    def _break(self, at: int, key: Hashable, case: _Case, *, at_end: bool) -> None:
        self.broken[at] += 1
        if self.breaches[at] is None:
            self.breaches[at] = Breach(key, case.recent, case.count, at_end)
