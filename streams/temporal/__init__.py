"""Temporal logic and temporal aggregation over event streams.

Formulas of temporal logic with their automata and monitors, paths through workflows, and
aggregates over rows that are valid from one time to another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streams.temporal.errors import (
    AutomatonFormatError,
    FormulaSyntaxError,
    FormulaTooLarge,
    UnknownProposition,
)
from streams.temporal.monitor import Monitor
from streams.temporal.parser import parse
from streams.temporal.printer import to_text
from streams.temporal.simplify import simplify
from streams.temporal.translate import translate
from streams.temporal.verdict import Verdict

if TYPE_CHECKING:
    from streams.temporal.counts import sequenced
    from streams.temporal.degeneralise import degeneralised
    from streams.temporal.drawing import to_dot, to_svg
    from streams.temporal.hoa import from_hoa, to_hoa
    from streams.temporal.intervals import (
        IntervalError,
        LateInterval,
        Period,
        RowTypeError,
        Watermark,
    )
    from streams.temporal.lbtt import from_lbtt, to_lbtt
    from streams.temporal.violation import Violated, Violation
    from streams.temporal.workflow import Node, Workflow, WorkflowError, read_workflow
    from streams.temporal.workflow_paths import SearchTooLarge, counter_example, counter_examples
    from streams.temporal.workflow_rule import BrokenRule, CounterExample, Rule, conditions

__all__ = [
    "AutomatonFormatError",
    "BrokenRule",
    "CounterExample",
    "FormulaSyntaxError",
    "FormulaTooLarge",
    "IntervalError",
    "LateInterval",
    "Monitor",
    "Node",
    "Period",
    "RowTypeError",
    "Rule",
    "SearchTooLarge",
    "UnknownProposition",
    "Verdict",
    "Violated",
    "Violation",
    "Watermark",
    "Workflow",
    "WorkflowError",
    "conditions",
    "counter_example",
    "counter_examples",
    "degeneralised",
    "from_hoa",
    "from_lbtt",
    "parse",
    "read_workflow",
    "sequenced",
    "simplify",
    "to_dot",
    "to_hoa",
    "to_lbtt",
    "to_svg",
    "to_text",
    "translate",
]

# Imported on first use: few programs need them besides formulas.
_ELSEWHERE = {
    "counts": ("sequenced",),
    "degeneralise": ("degeneralised",),
    "drawing": ("to_dot", "to_svg"),
    "hoa": ("from_hoa", "to_hoa"),
    "intervals": ("IntervalError", "LateInterval", "Period", "RowTypeError", "Watermark"),
    "lbtt": ("from_lbtt", "to_lbtt"),
    "violation": ("Violated", "Violation"),
    "workflow": ("Node", "Workflow", "WorkflowError", "read_workflow"),
    "workflow_paths": ("SearchTooLarge", "counter_example", "counter_examples"),
    "workflow_rule": ("BrokenRule", "CounterExample", "Rule", "conditions"),
}


def __getattr__(name: str) -> Any:
    for module, names in _ELSEWHERE.items():
        if name in names:
            from importlib import import_module

            value = getattr(import_module(f"{__name__}.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
