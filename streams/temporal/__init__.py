"""Temporal logic and temporal aggregation over event streams.

Formulas of temporal logic with their automata and monitors, formulas learned from examples, paths
through workflows, and aggregates over rows that are valid from one time to another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.streams.temporal.automata.translate import translate
from penstock.streams.temporal.errors import (
    AutomatonFormatError,
    FormulaSyntaxError,
    FormulaTooLarge,
    TimedFormula,
    UnknownProposition,
)
from penstock.streams.temporal.formula.parser import parse
from penstock.streams.temporal.formula.printer import to_text
from penstock.streams.temporal.formula.simplify import simplify
from penstock.streams.temporal.monitors.monitor import Monitor
from penstock.streams.temporal.monitors.verdict import Verdict

if TYPE_CHECKING:
    from penstock.streams.temporal.automata.degeneralise import degeneralised
    from penstock.streams.temporal.automata.hoa import from_hoa, to_hoa
    from penstock.streams.temporal.automata.lbtt import from_lbtt, to_lbtt
    from penstock.streams.temporal.learning.search import Finding, Learned, learn
    from penstock.streams.temporal.monitors.violation import Violated, Violation
    from penstock.streams.temporal.periods.counts import Periods, sequenced
    from penstock.streams.temporal.periods.intervals import (
        IntervalError,
        LateInterval,
        Period,
        RowTypeError,
        Watermark,
    )
    from penstock.streams.temporal.periods.join import Overlap, Overlaps, sequenced_join
    from penstock.streams.temporal.periods.slices import Slice, as_of, by_calendar
    from penstock.streams.temporal.workflow.mining import Breach, Miner, Traffic
    from penstock.streams.temporal.workflow.paths import counter_example, counter_examples
    from penstock.streams.temporal.workflow.rule import BrokenRule, CounterExample, Rule, conditions
    from penstock.streams.temporal.workflow.space import SearchTooLarge
    from penstock.streams.temporal.workflow.workflow import (
        Node,
        Workflow,
        WorkflowError,
        read_workflow,
    )

__all__ = [
    "AutomatonFormatError",
    "Breach",
    "BrokenRule",
    "CounterExample",
    "Finding",
    "FormulaSyntaxError",
    "FormulaTooLarge",
    "IntervalError",
    "LateInterval",
    "Learned",
    "Miner",
    "Monitor",
    "Node",
    "Overlap",
    "Overlaps",
    "Period",
    "Periods",
    "RowTypeError",
    "Rule",
    "SearchTooLarge",
    "Slice",
    "TimedFormula",
    "Traffic",
    "UnknownProposition",
    "Verdict",
    "Violated",
    "Violation",
    "Watermark",
    "Workflow",
    "WorkflowError",
    "as_of",
    "by_calendar",
    "conditions",
    "counter_example",
    "counter_examples",
    "degeneralised",
    "from_hoa",
    "from_lbtt",
    "learn",
    "parse",
    "read_workflow",
    "sequenced",
    "sequenced_join",
    "simplify",
    "to_hoa",
    "to_lbtt",
    "to_text",
    "translate",
]

# Imported on first use: few programs need them besides formulas.
_ELSEWHERE = {
    "periods.counts": ("Periods", "sequenced"),
    "periods.join": ("Overlap", "Overlaps", "sequenced_join"),
    "periods.slices": ("Slice", "as_of", "by_calendar"),
    "automata.degeneralise": ("degeneralised",),
    "automata.hoa": ("from_hoa", "to_hoa"),
    "periods.intervals": ("IntervalError", "LateInterval", "Period", "RowTypeError", "Watermark"),
    "automata.lbtt": ("from_lbtt", "to_lbtt"),
    "learning.search": ("Finding", "Learned", "learn"),
    "monitors.violation": ("Violated", "Violation"),
    "workflow.workflow": ("Node", "Workflow", "WorkflowError", "read_workflow"),
    "workflow.mining": ("Breach", "Miner", "Traffic"),
    "workflow.paths": ("SearchTooLarge", "counter_example", "counter_examples"),
    "workflow.rule": ("BrokenRule", "CounterExample", "Rule", "conditions"),
}


def __getattr__(name: str) -> Any:
    for module, names in _ELSEWHERE.items():
        if name in names:
            from importlib import import_module

            value = getattr(import_module(f"{__name__}.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
