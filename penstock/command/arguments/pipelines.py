"""The arguments of the sub-commands about a pipeline, on this machine, on NATS, or on Kafka."""

from __future__ import annotations

import argparse
from typing import NoReturn

from penstock.command.arguments.parsers import (
    AddParser,
    Options,
    add_drain_deadline,
    add_input,
    add_limit,
    add_output,
    add_report,
    add_rotate,
    address,
    names,
    plain,
    positive,
    seconds,
    share,
    with_file,
    workers,
)

__all__ = [
    "add_check",
    "add_completion",
    "add_dead_letters",
    "add_diff",
    "add_draw",
    "add_publish",
    "add_run",
    "add_schema",
    "add_status",
    "add_turning_point",
]

# Each event that arrives is a number in memory until it is begun; no pipeline takes so many.
_HIGHEST_RATE = 1_000_000


def add_run(add_parser: AddParser) -> None:
    run = with_file(
        add_parser, "run", "run a pipeline until its input ends or a signal comes", needed=False
    )
    run.usage = "penstock run FILE[:NAME] | - | -c CODE [options] [-- ARGUMENTS OF THE FILE]"
    run.add_argument(
        "--code",
        "-c",
        metavar="CODE",
        help="the pipeline itself, as in 'read_jsonl().pipe(...)', where all of penstock is known; "
        "without a sink it writes JSON lines to standard output",
    )
    run.reads_variables = True
    run.one_of = ("file", "code")
    run.epilog = (
        "Each option can also be set in the environment, as in PENSTOCK_LIMIT=1:64 and "
        "PENSTOCK_DRAIN_DEADLINE=5; PENSTOCK_TRACEBACK is 1 or 0. The command line wins."
    )
    add_input(run, several=True)
    add_output(run)
    add_rotate(run)
    add_limit(run, "work on N events at once, or on the best number between two bounds")
    add_drain_deadline(run, "how long work in flight may take after a signal or an error")
    add_report(run)
    watching = run.add_argument_group("logs and live page")
    _add_logs(watching)
    _add_page(watching)
    processes = run.add_argument_group("processes of this machine")
    _add_workers(
        processes,
        "run the handler in N processes of this machine; auto: as many as there are cores",
    )
    processes.add_argument(
        "--data",
        type=_no_folder,
        help=argparse.SUPPRESS,
    )
    servers = run.add_argument_group("servers, with --on")
    _add_servers(servers, required=False)
    servers.add_argument(
        "--lease",
        type=seconds,
        metavar="SECONDS",
        help="how long a worker may be silent before others take over; the same for all "
        "workers (default: that of the other workers, or 10; on Kafka 45)",
    )
    servers.add_argument(
        "--attempts",
        type=int,
        metavar="N",
        help="attempts before an event becomes a dead letter, if its stage has no on_error or if "
        "it ends its workers (default: 3)",
    )
    servers.add_argument("--worker", metavar="NAME", help="this worker's name")


def _add_logs(run: Options) -> None:
    run.add_argument(
        "--log-format",
        choices=("json", "text"),
        help="write each line on standard error as JSON, the report too, or as text",
    )
    run.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="the lowest level that is logged, by the file as well (default with --log-format: "
        "info); errors and the address of --serve are always written",
    )
    run.add_argument(
        "--trace",
        type=share,
        nargs="?",
        const=1.0,
        metavar="SHARE",
        help="trace this share of the events with OpenTelemetry (default: 1, all)",
    )


def _add_page(run: Options) -> None:
    run.add_argument(
        "--report-page",
        metavar="PATH",
        help="write an HTML page about the whole run when it has ended",
    )
    run.add_argument(
        "--serve",
        type=address,
        metavar="[HOST:]PORT",
        help="show the pipeline on a live page while it runs, with /metrics, /healthz and /readyz",
    )
    run.add_argument(
        "--allow-control",
        action="store_true",
        default=None,
        help="with --serve: allow pause, resume and drain to those who have the token: that of "
        "PENSTOCK_TOKEN, or else one that is printed",
    )
    run.add_argument(
        "--show-values",
        action="store_true",
        default=None,
        help="with --serve, --report-page or --trace: show values of events, such as keys and "
        "texts of errors",
    )
    run.add_argument(
        "--host",
        type=names,
        metavar="NAME[,NAME]",
        help="with --serve: other names of this machine that requests may use",
    )


def _add_workers(parser: Options, what: str) -> None:
    parser.add_argument("--workers", type=workers, metavar="N|auto", help=what)


def add_draw(add_parser: AddParser) -> None:
    draw = with_file(add_parser, "draw", "show the stages of a pipeline with their bounds")
    draw.add_argument(
        "--format",
        choices=("text", "mermaid", "svg", "json"),
        default="text",
        help="the form of the output (default: text); json: the definition, as plain data",
    )
    add_limit(draw, "show the bounds of `penstock run` with this --limit")
    _add_workers(draw, "show what the workers of `penstock run` with these --workers run")
    draw.add_argument(
        "--recorded",
        action="store_true",
        help="also show what `penstock run` keeps in memory with --serve or --report-page",
    )
    add_output(draw)


def add_diff(add_parser: AddParser) -> None:
    diff = plain(add_parser, "diff", "say what is different between two pipelines")
    diff.epilog = (
        "Each is a Python file with a pipeline, or a definition in TOML, YAML, or JSON as "
        "`penstock draw --format json` prints it. Ends with status 0 if they are made of the same, "
        "and with 1 if not."
    )
    for name in ("old", "new"):
        diff.add_argument(name, metavar=f"{name.upper()}[:NAME]")


def add_check(add_parser: AddParser) -> None:
    with_file(add_parser, "check", "build a pipeline and report what is wrong with it")


def add_turning_point(add_parser: AddParser) -> None:
    turning = with_file(
        add_parser,
        "turning-point",
        "measure the response time of a pipeline at rising rates, until it turns up",
    )
    turning.add_argument(
        "--input",
        metavar="PATH",
        required=True,
        help="the events to feed it with, instead of its own source",
    )
    turning.add_argument(
        "--repeat", action="store_true", help="read the file again as often as needed"
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
        type=_rate,
        metavar="N",
        help="the first rate, in events per second (default: a quarter of the rate one by one)",
    )
    turning.add_argument(
        "--yes",
        action="store_true",
        help="confirm that its handlers and sinks may run; needed if standard input is a terminal",
    )
    turning.add_argument("--plot", metavar="PATH.svg", help="also draw the response times")
    add_output(turning)
    add_drain_deadline(turning, "how long events in flight may take at the end")
    add_report(turning)


def add_completion(add_parser: AddParser) -> None:
    completion = plain(
        add_parser, "completion", "print the completion script of this command for a shell"
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"))


def add_schema(add_parser: AddParser) -> None:
    plain(
        add_parser, "schema", "print the JSON Schema of files of definitions, for editors to read"
    )


def add_publish(add_parser: AddParser) -> None:
    publish = with_file(
        add_parser, "publish", "feed JSON lines to a pipeline that runs on NATS or on Kafka"
    )
    add_input(publish)
    _add_servers(publish, required=True)
    add_drain_deadline(publish, "how long events in flight may take after a signal")
    add_report(publish)


def add_status(add_parser: AddParser) -> None:
    status = plain(add_parser, "status", "show a pipeline's workers and progress on NATS or Kafka")
    _add_place(status)
    _add_pool(status)
    status.add_argument("--watch", action="store_true", help="update it every second")


def add_dead_letters(add_parser: AddParser) -> None:
    letters = plain(
        add_parser,
        "dead-letters",
        "list or replay the dead letters of a pipeline on NATS or Kafka",
    )
    letters.add_argument(
        "action",
        choices=("list", "replay"),
        help="list: print them as JSON lines; replay: send their events to the pipeline again, and "
        "delete them",
    )
    letters.add_argument(
        "--id",
        type=int,
        nargs="+",
        metavar="N",
        help="only those with these numbers, as printed by list (default: all)",
    )
    _add_place(letters)
    _add_pool(letters)


def _add_servers(parser: Options, *, required: bool) -> None:
    _add_place(parser, required=required, default=" (default: the file's name)")
    parser.add_argument(
        "--partitions",
        type=int,
        metavar="N",
        help="how many parts the keys are divided into; fixed when the stream is created "
        "(default: 64; on Kafka, create the topic with N if it does not exist)",
    )
    parser.add_argument(
        "--replicas",
        type=int,
        metavar="N",
        help="how many servers keep each event (default: 3 if there are as many)",
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
        "stream is created; above 1, duplicates are dropped within a partition only (default: 128 "
        "if that drops the same duplicates, otherwise 1)",
    )


def _add_pool(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pool", metavar="NAME", help="a work pool by its name, instead of a pipeline"
    )


def _add_place(parser: Options, *, required: bool = True, default: str = "") -> None:
    parser.add_argument(
        "--on",
        required=required,
        metavar="URL[,URL...]",
        help="the NATS servers, as in nats://a:4222,b:4222, or a topic of Kafka, as in "
        "kafka://a:9092,b:9092/orders",
    )
    parser.add_argument("--name", help=f"the name of the pipeline, on Kafka of its group{default}")
    parser.add_argument(
        "--kafka-config",
        metavar="PATH",
        help="with --on kafka://: a file with settings of the client, such as sasl.username, one "
        "name=value per line",
    )


def _no_folder(text: str) -> NoReturn:
    raise argparse.ArgumentTypeError(
        "workers keep no events. To have unfinished ones survive a crash, keep them in a table, "
        "with read_table() as the source, or on a NATS server, with read_jetstream(): --workers "
        "goes with both"
    )


def _rate(text: str) -> float:
    """Events per second."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= _HIGHEST_RATE:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of events per second, above 0 and at most {_HIGHEST_RATE:,}"
        )
    return found
