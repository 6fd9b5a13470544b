"""Follows a rule along the steps of a case, as they happen.

A path of the rule begins at each initial step that the case comes to. It breaks the rule at a final
step, by the same judgement as in the search of a workflow: if the formula fails on the path, or by
being there, where there is no formula. A formula that can no longer hold breaks it at once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from penstock.streams.temporal.monitors.monitor import Monitor
from penstock.streams.temporal.monitors.verdict import Verdict
from penstock.streams.temporal.workflow.rule import Rule, Selector
from penstock.streams.temporal.workflow.workflow import Node, Workflow

__all__ = ["Following", "Runs"]

# For each path that has begun: the state of the monitor, and the number of its nodes, as far as the
# rule counts them.
Runs: TypeAlias = frozenset[tuple[int, int]]

_MOST_STEPS = 1_000
_MOST_RUNS = 10_000


class Following:
    """One rule for all cases; the state of a case is its `Runs`, at first none.

    Facts of a step are those of its node in the workflow; a step without a node has only its name.
    A path longer than the rule's `max_nodes` is dropped. Time of a step: the number of runs that
    differ, at most the monitor's states times the rule's bounds. Raises FormulaTooLarge.
    """

    def __init__(self, rule: Rule, workflow: Workflow | None) -> None:
        self._rule = rule
        self._nodes = {} if workflow is None else workflow.nodes
        self._monitor = None
        if rule.formula is not None:
            self._monitor = Monitor(rule.formula)
            self._asked = frozenset(self._monitor.propositions)
        self.began = False
        # The same for many cases, which so share their runs as well. Of unlimited numbers, those
        # that were used last.
        self._facts = lru_cache(_MOST_STEPS)(self._facts_of)
        self.after = lru_cache(_MOST_RUNS)(self._after)

    def _after(self, runs: Runs, step: str) -> tuple[Runs, bool]:
        """The paths after one more step, and whether one of them breaks the rule."""
        letter, is_initial, is_final = self._facts(step)
        if not runs and not is_initial:
            return runs, False
        rule, monitor = self._rule, self._monitor
        begun = [(Monitor.first, 0)] if is_initial else []
        self.began = self.began or is_initial
        found: set[tuple[int, int]] = set()
        for state, nodes in (*runs, *begun):
            if rule.max_nodes is None:
                nodes = min(nodes + 1, rule.min_nodes)
            elif nodes == rule.max_nodes:
                continue
            else:
                nodes += 1
            if monitor is not None:
                state = monitor.next(state, letter)
                if monitor.verdict(state) is Verdict.TRUE:
                    continue
            found.add((state, nodes))
        least = rule.min_nodes
        return frozenset(found), any(
            self._breaks(state, is_final and nodes >= least) for state, nodes in found
        )

    def _breaks(self, state: int, is_at_final: bool) -> bool:
        if self._monitor is None:
            return is_at_final
        verdict = self._monitor.at_end if is_at_final else self._monitor.verdict
        return verdict(state) is Verdict.FALSE

    def fails_at_end(self, runs: Runs) -> bool:
        """Whether one of the paths breaks the rule if the case has ended.

        Only of a rule without final steps; otherwise the case has not come to one.
        """
        monitor = self._monitor
        if self._rule.final is not None or monitor is None:
            return False
        return any(monitor.at_end(state) is Verdict.FALSE for state, _ in runs)

    def _facts_of(self, step: str) -> tuple[int, bool, bool]:
        """The letter of a step, and whether it is initial and final."""
        node = self._nodes.get(step) or Node(step)
        letter = 0
        if self._monitor is not None:
            letter = self._monitor.letter(node.facts & self._asked)
        initial, final = self._rule.initial, self._rule.final
        return letter, _selects(initial, node), final is not None and _selects(final, node)


def _selects(selector: Selector, node: Node) -> bool:
    return selector in node.facts if isinstance(selector, str) else bool(selector(node))
