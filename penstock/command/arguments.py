"""The command-line arguments, one function per sub-command.

Nothing of the library is imported here, so that `--help` comes at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from penstock.command.parsers import (
    AddParser,
    Formatter,
    add_drain_deadline,
    add_input,
    add_limit,
    add_output,
    add_report,
    evidence,
    number,
    plain,
    positive,
    seconds,
    with_file,
)
from penstock.command.queue_arguments import add_queue

__all__ = ["COMMANDS"]


def _add_run(add_parser: AddParser) -> None:
    run = with_file(add_parser, "run", "run a pipeline until its input ends or a signal comes")
    add_input(run)
    add_output(run)
    add_limit(run, "work on N events at once, or on the best number between two bounds")
    add_drain_deadline(run, "work in flight gets after a signal or an error")
    add_report(run)
    _add_servers(run, required=False)
    run.add_argument(
        "--lease",
        type=seconds,
        metavar="SECONDS",
        help="with --on: after so long without a sign of life others take over; the same for all "
        "workers (default: 10, or what it is there)",
    )
    run.add_argument(
        "--attempts",
        type=int,
        metavar="N",
        help="with --on or --workers: attempts at an event before it is a dead letter, if its "
        "stage has no on_error or if it ends its workers (default: 3)",
    )
    run.add_argument("--worker", metavar="NAME", help="with --on: this worker's name")
    run.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="work in N processes on this machine, with a NATS server that is started for it",
    )
    run.add_argument(
        "--data",
        metavar="FOLDER",
        help="with --workers: where that server keeps what is unfinished "
        "(default: a folder that lasts as long as the run)",
    )


def _add_publish(add_parser: AddParser) -> None:
    publish = with_file(
        add_parser, "publish", "feed JSON lines to a pipeline that runs on NATS JetStream"
    )
    add_input(publish)
    _add_servers(publish, required=True)
    add_drain_deadline(publish, "events under way get after a signal")
    add_report(publish)


def _add_servers(parser: argparse.ArgumentParser, *, required: bool) -> None:
    _add_place(parser, required=required, default=" (default: the file's)")
    parser.add_argument(
        "--partitions",
        type=int,
        metavar="N",
        help="how many parts the keys are divided into; fixed when the stream is created "
        "(default: 64)",
    )
    parser.add_argument(
        "--replicas",
        type=int,
        metavar="N",
        help="on how many servers each event is kept (default: 3 if there are as many)",
    )
    parser.add_argument(
        "--room",
        type=int,
        metavar="BYTES",
        help="space that the servers reserve for events when the stream is created "
        "(default: 1 GiB)",
    )
    parser.add_argument(
        "--batch",
        type=int,
        metavar="N",
        help="how many events of a partition publishers pack into one message; fixed when the "
        "stream is created (default: 1); duplicates are then dropped within a partition",
    )


def _add_status(add_parser: AddParser) -> None:
    status = plain(add_parser, "status", "show a pipeline's workers and progress on NATS")
    _add_place(status)
    _add_pool(status)
    status.add_argument("--watch", action="store_true", help="show it anew each second")


def _add_dead_letters(add_parser: AddParser) -> None:
    letters = plain(add_parser, "dead-letters", "list the dead letters, or try them again")
    letters.add_argument("action", choices=("list", "replay"))
    letters.add_argument(
        "--id", type=int, nargs="+", metavar="N", help="those with these numbers (default: all)"
    )
    _add_place(letters)
    _add_pool(letters)


def _add_pool(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pool", metavar="NAME", help="the work pool of that name instead of a pipeline"
    )


def _add_place(
    parser: argparse.ArgumentParser, *, required: bool = True, default: str = ""
) -> None:
    parser.add_argument(
        "--on",
        required=required,
        metavar="URL[,URL...]",
        help="the NATS servers, as in nats://a:4222,b:4222",
    )
    parser.add_argument("--name", help=f"the pipeline's name there{default}")


def _add_draw(add_parser: AddParser) -> None:
    draw = with_file(add_parser, "draw", "show the stages of a pipeline with their bounds")
    draw.add_argument("--format", choices=("text", "mermaid", "svg"), default="text")
    add_limit(draw, "what it holds when `penstock run` is given this --limit")
    add_output(draw)


def _add_check(add_parser: AddParser) -> None:
    with_file(add_parser, "check", "build a pipeline and report what is wrong with it")


def _add_check_workflow(add_parser: AddParser) -> None:
    check = plain(
        add_parser, "check-workflow", "look for paths of workflows that break the rules of a file"
    )
    check.usage = "penstock check-workflow GRAPH.json [GRAPH.json ...] RULES.py [options]"
    check.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help='graphs, as in {"nodes": {name: facts, ...}}, and the one .py file, with rules in '
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
        "--draw", metavar="PATH", help="draw the first of them, as .svg or, for Graphviz, .dot"
    )
    check.add_argument(
        "--traceback", action="store_true", help="show penstock's own frames in tracebacks too"
    )


def _add_mine(add_parser: AddParser) -> None:
    mine = plain(
        add_parser,
        "mine",
        "count the steps of cases in JSON lines, and compare them with a workflow",
    )
    mine.add_argument(
        "graph",
        nargs="?",
        metavar="GRAPH.json",
        help='the workflow, as in {"nodes": {name: facts, ...}}',
    )
    mine.add_argument(
        "--by", metavar="FIELD", help="the events of each key are one case (default: all are)"
    )
    mine.add_argument(
        "--step", default="step", metavar="FIELD", help="the name of the step (default: step)"
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
        help="forget the case used longest ago where there are more (default: 1,000,000)",
    )
    mine.add_argument(
        "--draw",
        metavar="PATH",
        help="draw what happened over the workflow, as .svg or, for Graphviz, .dot",
    )
    mine.add_argument(
        "--traceback", action="store_true", help="show penstock's own frames in tracebacks too"
    )
    add_input(mine)
    add_output(mine)
    add_report(mine, "none")


def _add_monitor(add_parser: AddParser) -> None:
    monitor = plain(
        add_parser, "monitor", "report where JSON lines violate a formula of temporal logic"
    )
    monitor.add_argument("formula", metavar="FORMULA", help="such as 'G(paid -> F sent)'")
    monitor.add_argument(
        "--prop",
        action="append",
        default=[],
        metavar="NAME=FIELD:VALUE",
        help="what a name in the formula means; without VALUE: that the field is true. Repeat it",
    )
    monitor.add_argument(
        "--fields",
        action="store_true",
        help="names without a --prop are fields of the events",
    )
    monitor.add_argument("--by", metavar="FIELD", help="watch the events of each key on their own")
    monitor.add_argument(
        "--evidence",
        type=evidence,
        default=16,
        metavar="N|full|letters",
        help="events to show with a violation (default: 16), or the names that held",
    )
    monitor.add_argument(
        "--mode",
        choices=("ltl3", "rv"),
        default="ltl3",
        help="rv: also report when it becomes presumably false",
    )
    monitor.add_argument(
        "--restart", action="store_true", help="begin anew with a key after its violation"
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
        help="with --time: how long after a later event one may come (default: 0)",
    )
    monitor.add_argument(
        "--draw",
        metavar="FILE",
        help="an SVG file with how many keys stand in each state, written once a second",
    )
    monitor.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="KEY",
        help="with --draw and --by: mark this key and the steps it has taken. Repeat it",
    )
    add_input(monitor)
    add_output(monitor)
    add_report(monitor, "none")


def _add_learn(add_parser: AddParser) -> None:
    learn = plain(
        add_parser, "learn", "find formulas that hold on good traces and fail on bad ones"
    )
    learn.add_argument(
        "good",
        metavar="GOOD",
        help="JSON lines, each a list of events; with --by, each an event",
    )
    learn.add_argument("bad", metavar="BAD", help="the same of the traces that should not be")
    learn.add_argument("--by", metavar="FIELD", help="the events of each key are one trace")
    learn.add_argument(
        "--prop",
        action="append",
        default=[],
        metavar="NAME=FIELD:VALUE",
        help="a proposition, as for `penstock monitor`. Repeat it",
    )
    learn.add_argument(
        "--fields",
        action="store_true",
        help="every field that is true or false is a proposition",
    )
    learn.add_argument("--step", metavar="FIELD", help="every value of this field is a proposition")
    add_output(learn)
    add_report(learn, "none")


def _add_formula(add_parser: AddParser) -> None:
    formula = plain(add_parser, "formula", "show, translate and compare formulas of temporal logic")
    formula.add_argument("formula", metavar="FORMULA", help="such as 'G(paid -> F sent)'")
    formula.add_argument(
        "--ltl", action="store_true", help="write regular expressions as LTL first, where it can"
    )
    formula.add_argument("--simplify", action="store_true", help="simplify it first")
    formula.add_argument("--unicode", action="store_true", help="print it in the symbols of logic")
    form = formula.add_mutually_exclusive_group()
    form.add_argument("--lbtt", action="store_true", help="its Büchi automaton as LBTT reads it")
    form.add_argument("--hoa", action="store_true", help="its Büchi automaton as HOA")
    form.add_argument(
        "--svg",
        action="store_true",
        help="draw the automaton, each edge with the number of its line in --lbtt",
    )
    form.add_argument(
        "--compare",
        metavar="FORMULA",
        help="how it is related to another one, on finite traces and on infinite words; exit "
        "status 1 if they differ",
    )
    form.add_argument(
        "--examples", action="store_true", help="the shortest traces that satisfy and violate it"
    )
    formula.add_argument(
        "--ba",
        action="store_true",
        help="an automaton with at most one acceptance set (as HOA, unless --lbtt or --svg)",
    )
    add_output(formula)


def _add_counts(add_parser: AddParser) -> None:
    counts = plain(
        add_parser, "counts", "count the rows that are valid at every instant, or in each month"
    )
    counts.add_argument(
        "source",
        nargs="?",
        metavar="FILE|URL",
        help="a file of CSV (.csv) or JSON lines, or a database, as in sqlite:///work.db or "
        "postgresql://host/name (default: JSON lines of standard input)",
    )
    counts.add_argument("--table", metavar="NAME", help="the table of the database")
    counts.add_argument(
        "--format", choices=("csv", "jsonl"), help="the file's format, if its name does not say it"
    )
    for name, default, what in (
        ("begin", "from", "the time from which a row is valid"),
        ("end", "to", "the time at which its validity ends; open without a value"),
    ):
        counts.add_argument(
            f"--{name}",
            default=default,
            metavar="FIELD",
            help=f"the field that says {what} (default: {default})",
        )
    counts.add_argument("--by", metavar="FIELD", help="count the rows of each key on their own")
    counts.add_argument(
        "--aggregate",
        choices=("count", "sum", "avg", "min", "max"),
        default="count",
        help="what to compute of the rows valid at an instant (default: count)",
    )
    counts.add_argument(
        "--of", metavar="FIELD", help="the number to aggregate, with any --aggregate but count"
    )
    shown = counts.add_mutually_exclusive_group()
    shown.add_argument(
        "--month", action="store_true", help="least, mean over time and greatest of each month"
    )
    shown.add_argument("--at", metavar="T", help="only the value at that instant, as in 2004-07-13")
    counts.add_argument(
        "--until", metavar="T", help="with --month: examine the time before that instant only"
    )
    counts.add_argument("--plot", metavar="PATH.svg", help="draw the periods, or the months, too")


def _add_kata(add_parser: AddParser) -> None:
    kata = add_parser(
        "kata",
        help="run the stream kata at full load and measure it",
        description="Run the stream kata on a load of events, with a line each second on standard "
        "error, and print one table: throughput, queue, latency from creation to start in "
        "milliseconds, and what went wrong.",
        allow_abbrev=False,
        formatter_class=Formatter,
    )
    for name, kind, default, what in (
        ("rate", float, 1000, "events a second"),
        ("clients", int, 100, "number of clients"),
        ("duplicates", float, 0.01, "share of duplicates, from 0 to 1"),
        ("seconds", float, 10, "how long the load lasts"),
        ("handler-ms", float, 10, "mean time of work on one event"),
        ("sigma-ms", float, 1, "its standard deviation"),
        ("seed", int, 1, "of the load"),
    ):
        kata.add_argument(
            f"--{name}", type=kind, default=default, help=f"{what} (default: {default})"
        )
    kata.add_argument(
        "--variant",
        action="append",
        metavar="NAME",
        help="run this step of the article as well, or all of them; may be repeated: "
        "sequential, naive-pool, fail-on-concurrent, wait-on-concurrent, smart-pool, all",
    )
    kata.add_argument(
        "--try",
        dest="consumer",
        metavar="FILE[:NAME]",
        help="grade this consumer instead of running penstock's pipeline: a function of one event, "
        "or a class or object with submit(event); exit status 1 if it breaks a promise",
    )
    kata.add_argument(
        "--pool",
        type=number,
        metavar="N",
        help="threads in each variant's pool (default: the article's, 12 of smart-pool, else 10)",
    )
    kata.add_argument(
        "--slow-client",
        type=float,
        nargs="?",
        const=5.0,
        metavar="TIMES",
        help="the events of one client take so many times as long (default: 5)",
    )
    kata.add_argument(
        "--pause",
        type=seconds,
        nargs="?",
        const=1.0,
        metavar="SECONDS",
        help="at half of the time stop the whole interpreter for so long, as a garbage collector "
        "does (default: 1)",
    )


def _add_santa(add_parser: AddParser) -> None:
    santa = plain(
        add_parser,
        "santa",
        "run the self-adjusting mailbox: batches of jobs, in processes or simulated",
    )
    santa.add_argument(
        "--simulate",
        action="store_true",
        help="on a virtual machine, in virtual time, instead of processes",
    )
    santa.add_argument(
        "--race",
        action="store_true",
        help="simulate naive, fixed:4, hill-climb and auto side by side, with the same letters",
    )
    santa.add_argument(
        "--shift",
        type=number,
        nargs="?",
        const=0,
        metavar="CORES",
        help="of a simulation: at minute 10 only so many cores are left (default: three quarters)",
    )
    santa.add_argument(
        "--limit",
        metavar="naive|fixed:N|hill-climb|auto",
        help="how many jobs at once; naive: all (default: auto, which tunes itself)",
    )
    santa.add_argument(
        "--learning-rate", type=float, metavar="SHARE", help="of the hill climb (default: 0.1)"
    )
    santa.add_argument(
        "--exploration-rate", type=float, metavar="SHARE", help="of the hill climb (default: 0.1)"
    )
    santa.add_argument(
        "--batches",
        type=int,
        help="how many batches (default: 40; 360, half an hour, with --race or --shift)",
    )
    santa.add_argument(
        "--max-batch",
        type=number,
        default=10,
        metavar="N",
        help="a batch has 0 to N jobs (default: 10)",
    )
    santa.add_argument(
        "--interval",
        type=seconds,
        default=5.0,
        metavar="SECONDS",
        help="of the story between two batches (default: 5)",
    )
    santa.add_argument(
        "--value",
        type=number,
        metavar="NUMBER",
        help="what each job factorizes (default: with --simulate the article's 2130093701, which "
        "took 5.5 s; else a fixed smaller prime, 2130061 at the default speed)",
    )
    santa.add_argument(
        "--cores",
        type=number,
        metavar="N",
        help="processes (default: four for each core here), or virtual cores (default: 8)",
    )
    santa.add_argument(
        "--speed",
        type=float,
        help="of processes: how many times as fast as the article's clock (default: 20)",
    )
    santa.add_argument(
        "--seed", type=int, default=0, help="of the sizes of batches and the hill climb's steps"
    )
    santa.add_argument("--plot", metavar="PATH", help="draw what happened as .svg or .png, too")


def _add_turning_point(add_parser: AddParser) -> None:
    turning = with_file(
        add_parser,
        "turning-point",
        "measure the response time of a pipeline at rising rates, until it turns up",
    )
    turning.add_argument(
        "--input",
        metavar="PATH",
        required=True,
        help="the events to feed it with, in place of its own source",
    )
    turning.add_argument(
        "--repeat", action="store_true", help="begin the file anew as often as needed"
    )
    turning.add_argument(
        "--seconds",
        type=positive,
        default=3.0,
        metavar="SECONDS",
        help="how long each rate lasts, at least (default: 3)",
    )
    turning.add_argument(
        "--rate",
        type=positive,
        metavar="N",
        help="the first rate, in events per second (default: a quarter of what it does one by one)",
    )
    turning.add_argument(
        "--yes",
        action="store_true",
        help="yes, run its handlers and sinks; needed where standard input is a terminal",
    )
    turning.add_argument("--plot", metavar="PATH.svg", help="draw the response times, too")
    add_output(turning)
    add_drain_deadline(turning, "events under way get at the end")
    add_report(turning)


COMMANDS: dict[str, Callable[[AddParser], None]] = {
    "run": _add_run,
    "draw": _add_draw,
    "check": _add_check,
    "check-workflow": _add_check_workflow,
    "mine": _add_mine,
    "learn": _add_learn,
    "monitor": _add_monitor,
    "counts": _add_counts,
    "formula": _add_formula,
    "publish": _add_publish,
    "status": _add_status,
    "dead-letters": _add_dead_letters,
    "queue": add_queue,
    "turning-point": _add_turning_point,
    "kata": _add_kata,
    "santa": _add_santa,
}
"""The sub-commands, by name; the module of the same name has `call`, which runs it."""
