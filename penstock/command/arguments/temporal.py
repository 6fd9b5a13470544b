"""The arguments of the sub-commands about temporal logic, workflows and counts over time."""

from __future__ import annotations

from argparse import SUPPRESS

from penstock.command.arguments.inputs import add_event_options, add_events
from penstock.command.arguments.parsers import (
    AddParser,
    add_output,
    add_report,
    add_traceback,
    evidence,
    number,
    plain,
    seconds,
    seconds_or_none,
)

__all__ = [
    "add_check_workflow",
    "add_counts",
    "add_formula",
    "add_learn",
    "add_mine",
    "add_monitor",
]


def add_check_workflow(add_parser: AddParser) -> None:
    check = plain(add_parser, "check-workflow", "find paths of workflows that break rules")
    check.usage = "penstock check-workflow GRAPH.json [GRAPH.json ...] RULES.py [options]"
    check.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help='graphs, as in {"nodes": {name: facts, ...}}, and one .py file with rules in '
        "variables",
    )
    check.add_argument(
        "--all",
        type=number,
        default=1,
        metavar="N",
        help="show up to N paths that break a rule, shortest first (default: 1)",
    )
    check.add_argument(
        "--draw", metavar="PATH", help="draw the first path found, as .svg or, for Graphviz, .dot"
    )
    add_traceback(check)


def add_mine(add_parser: AddParser) -> None:
    mine = plain(
        add_parser,
        "mine",
        "count the steps of cases, and compare them with a workflow",
    )
    mine.add_argument(
        "--graph",
        metavar="GRAPH.json",
        help='the workflow, as in {"nodes": {name: facts, ...}}',
    )
    mine.add_argument(
        "--by", metavar="FIELD", help="each key is one case (default: all events are one case)"
    )
    mine.add_argument(
        "--step", default="step", metavar="FIELD", help="the field with the step (default: step)"
    )
    mine.add_argument(
        "--time",
        metavar="FIELD",
        help="the field with the time of an event, in whose order the events are counted; all are "
        "in memory then (default: the order in which they are read)",
    )
    mine.add_argument(
        "--rules",
        metavar="RULES.py",
        help="a Python file with rules in variables, for the cases and for the workflow",
    )
    mine.add_argument(
        "--max-keys",
        type=number,
        default=1_000_000,
        metavar="N",
        help="with more cases, forget the one whose last event is the oldest (default: 1,000,000)",
    )
    mine.add_argument(
        "--all",
        action="store_true",
        help="show all steps, arcs and paths (default: the most frequent, and what is forbidden)",
    )
    mine.add_argument(
        "--format",
        choices=("text", "json", "graph"),
        default="text",
        help="the form of the output (default: text); json: all in one object; graph: what "
        "happened, as a workflow for `penstock check-workflow`",
    )
    mine.add_argument(
        "--draw",
        metavar="PATH",
        help="draw the workflow with what happened, as .svg or, for Graphviz, .dot",
    )
    add_traceback(mine)
    add_events(mine)
    add_output(mine)
    add_report(mine, "none")


def add_monitor(add_parser: AddParser) -> None:
    monitor = plain(
        add_parser, "monitor", "report where events violate a formula of temporal logic"
    )
    monitor.add_argument("formula", metavar="FORMULA", help="such as 'G(paid -> F sent)'")
    monitor.add_argument(
        "--prop",
        action="append",
        default=[],
        metavar="NAME=FIELD:VALUE",
        help="what a name in the formula means; without VALUE: that the field is true; may be "
        "repeated",
    )
    monitor.add_argument(
        "--fields",
        action="store_true",
        help="names without a --prop are fields that are true or false",
    )
    monitor.add_argument("--by", metavar="FIELD", help="watch each key separately")
    monitor.add_argument(
        "--evidence",
        type=evidence,
        default=16,
        metavar="N|full|letters",
        help="how many events to show with a violation (default: 16); letters: the names that held",
    )
    monitor.add_argument(
        "--mode",
        choices=("ltl3", "rv"),
        default="ltl3",
        help="rv: also report when it becomes presumably false",
    )
    monitor.add_argument(
        "--restart", action="store_true", help="watch a key again after its violation"
    )
    monitor.add_argument(
        "--time",
        metavar="FIELD",
        help="the field with the time of an event, for bounds such as F[<=10s] (default: when it "
        "was read)",
    )
    monitor.add_argument(
        "--lateness",
        type=seconds,
        default=0.0,
        metavar="SECONDS",
        help="with --time: how late an event may come after a newer one (default: 0)",
    )
    monitor.add_argument(
        "--max-ahead",
        type=seconds_or_none,
        default=SUPPRESS,
        metavar="SECONDS|none",
        help="with --time: how far the time of an event may be ahead of the clock; one that is "
        "further ahead is left out (default: an hour)",
    )
    monitor.add_argument(
        "--draw",
        metavar="FILE",
        help="draw the automaton as SVG, with the number of keys in each state, once per second",
    )
    monitor.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="KEY",
        help="with --draw and --by: mark this key and the steps it has taken; may be repeated",
    )
    add_events(monitor)
    add_output(monitor)
    add_report(monitor, "none")


def add_learn(add_parser: AddParser) -> None:
    learn = plain(
        add_parser, "learn", "find formulas that hold on good traces and fail on bad ones"
    )
    learn.add_argument(
        "good",
        metavar="GOOD",
        help="a file, a pattern or a URL: with --by of events, otherwise of JSON lines, each a "
        "list of events",
    )
    learn.add_argument("bad", metavar="BAD", help="the same, of bad traces")
    learn.add_argument("--by", metavar="FIELD", help="the events of each key are one trace")
    learn.add_argument(
        "--prop",
        action="append",
        default=[],
        metavar="NAME=FIELD:VALUE",
        help="a proposition, as for `penstock monitor`; may be repeated",
    )
    learn.add_argument(
        "--fields",
        action="store_true",
        help="every field that is true or false is a proposition",
    )
    learn.add_argument("--step", metavar="FIELD", help="every value of this field is a proposition")
    add_event_options(learn)
    add_output(learn)
    add_report(learn, "none")


def add_formula(add_parser: AddParser) -> None:
    formula = plain(add_parser, "formula", "show, translate and compare formulas of temporal logic")
    formula.add_argument("formula", metavar="FORMULA", help="such as 'G(paid -> F sent)'")
    formula.add_argument(
        "--ltl", action="store_true", help="write regular expressions as LTL first, if possible"
    )
    formula.add_argument("--simplify", action="store_true", help="simplify it first")
    formula.add_argument("--unicode", action="store_true", help="print it in the symbols of logic")
    form = formula.add_mutually_exclusive_group()
    form.add_argument("--lbtt", action="store_true", help="print its Büchi automaton for LBTT")
    form.add_argument("--hoa", action="store_true", help="print its Büchi automaton as HOA")
    form.add_argument(
        "--svg",
        action="store_true",
        help="draw the automaton, each edge with the number of its line in --lbtt",
    )
    form.add_argument(
        "--compare",
        metavar="FORMULA",
        help="compare it with another one, on finite traces and on infinite words; exit status 1 "
        "if they differ",
    )
    form.add_argument(
        "--examples",
        action="store_true",
        help="print the shortest traces that satisfy and violate it",
    )
    formula.add_argument(
        "--ba",
        action="store_true",
        help="give the automaton at most one acceptance set (as HOA, unless --lbtt or --svg)",
    )
    add_output(formula)


def add_counts(add_parser: AddParser) -> None:
    counts = plain(
        add_parser, "counts", "count the rows that are valid at every instant, or by the calendar"
    )
    for name, default, what in (
        ("begin", "from", "the time from which a row is valid"),
        ("end", "to", "the time at which its validity ends; a row without one is open"),
    ):
        counts.add_argument(
            f"--{name}",
            default=default,
            metavar="FIELD",
            help=f"the field with {what} (default: {default})",
        )
    counts.add_argument("--by", metavar="FIELD", help="count the rows of each key separately")
    counts.add_argument(
        "--aggregate",
        choices=("count", "sum", "avg", "min", "max"),
        default="count",
        help="what to compute from the rows valid at an instant (default: count)",
    )
    counts.add_argument(
        "--of", metavar="FIELD", help="the number to aggregate, with any --aggregate but count"
    )
    shown = counts.add_mutually_exclusive_group()
    for unit in ("day", "week", "month", "quarter", "year"):
        note = ", from Monday" if unit == "week" else ""
        shown.add_argument(
            f"--{unit}",
            action="store_const",
            const=unit,
            dest="unit",
            help=f"print the least, the mean over time and the greatest value of each {unit}{note}",
        )
    shown.add_argument("--at", metavar="T", help="print the value at an instant, as in 2004-07-13")
    counts.add_argument(
        "--until",
        metavar="T",
        help="with --day, --week, --month, --quarter or --year: only the time before this instant",
    )
    counts.add_argument(
        "--zone",
        metavar="ZONE",
        help="with these: the calendar of this time zone, as in Europe/Athens, for times that name "
        "their zone (default: UTC)",
    )
    counts.add_argument(
        "--join",
        action="store_true",
        help="print the series side by side, each period with the values of all: the PATHs, if "
        "there are several, otherwise the keys of --by",
    )
    counts.add_argument(
        "--null",
        metavar="VALUE",
        help="print this value where no row is valid (default: no line; in a line of --join 0 for "
        "a count, otherwise null)",
    )
    counts.add_argument("--plot", metavar="PATH.svg", help="also draw this")
    add_events(counts)
    add_output(counts)
    add_report(counts, "none")
