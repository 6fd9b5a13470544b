"""The arguments of the sub-commands that reproduce an article: the kata and Santa."""

from __future__ import annotations

from penstock.command.arguments.parsers import (
    AddParser,
    Formatter,
    number,
    plain,
    seconds,
    workers,
)

__all__ = ["add_kata", "add_santa"]


def add_kata(add_parser: AddParser) -> None:
    kata = add_parser(
        "kata",
        help="run the stream kata at full load and measure it",
        description="Run the stream kata at full load, with a line per second on standard error, "
        "and print one table: throughput, queue, latency from creation to start in milliseconds, "
        "and what went wrong.",
        allow_abbrev=False,
        formatter_class=Formatter,
    )
    for name, kind, default, what in (
        ("clients", int, 100, "number of clients"),
        ("duplicates", float, 0.01, "share of duplicates, from 0 to 1"),
        ("seconds", float, 10, "how long the load lasts"),
        ("handler-ms", float, 10, "mean time that an event takes"),
        ("sigma-ms", float, 1, "its standard deviation"),
        ("seed", int, 1, "seed of the load"),
    ):
        kata.add_argument(
            f"--{name}", type=kind, default=default, help=f"{what} (default: {default})"
        )
    kata.add_argument(
        "--rate",
        type=float,
        help="events per second (default: 1000; with --cpu-ms more than one process can do)",
    )
    kata.add_argument(
        "--cpu-ms",
        type=float,
        metavar="MS",
        help="each event takes this much processor time instead of a pause",
    )
    kata.add_argument(
        "--workers",
        type=workers,
        metavar="N|auto",
        help="with --cpu-ms: also run it in N processes",
    )
    kata.add_argument(
        "--variant",
        action="append",
        metavar="NAME",
        help="also run this step of the article, or all of them: sequential, naive-pool, "
        "fail-on-concurrent, wait-on-concurrent, smart-pool, all; may be repeated (penstock is run "
        "in any case)",
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
        help="threads in each variant's pool (default, as in the article: 12 for smart-pool, "
        "otherwise 10)",
    )
    kata.add_argument(
        "--slow-client",
        type=float,
        nargs="?",
        const=5.0,
        metavar="TIMES",
        help="the events of one client take TIMES as long (default: 5)",
    )
    kata.add_argument(
        "--pause",
        type=seconds,
        nargs="?",
        const=1.0,
        metavar="SECONDS",
        help="stop the whole interpreter for this long at half of the time, as a garbage collector "
        "might (default: 1)",
    )
    kata.add_argument(
        "--report-page", metavar="PATH", help="also write the measurements as an HTML page"
    )
    kata.add_argument(
        "--plot", metavar="PATH.svg", help="draw the latencies of all variants side by side"
    )


def add_santa(add_parser: AddParser) -> None:
    santa = plain(
        add_parser,
        "santa",
        "run the self-adjusting mailbox: batches of jobs, in processes or simulated",
    )
    santa.add_argument(
        "--simulate",
        action="store_true",
        help="simulate a machine in virtual time, instead of running processes",
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
        help="with a simulation: the cores that are left from minute 10 on (default: three "
        "quarters)",
    )
    santa.add_argument(
        "--limit",
        metavar="naive|fixed:N|hill-climb|auto",
        help="how many jobs at once; naive: all (default: auto, which tunes itself)",
    )
    santa.add_argument(
        "--learning-rate",
        type=float,
        metavar="SHARE",
        help="of the hill climb: the weight of a new observation (default: 0.1)",
    )
    santa.add_argument(
        "--exploration-rate",
        type=float,
        metavar="SHARE",
        help="of the hill climb: the chance of a random step (default: 0.1)",
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
        help="the time between two batches in the story (default: 5)",
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
        help="processes (default: four per core of this machine), or with a simulation virtual "
        "cores (default: 8)",
    )
    santa.add_argument(
        "--speed",
        type=float,
        help="with processes: how many times as fast as the article's clock (default: 20)",
    )
    santa.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of the batch sizes and the hill climb's steps (default: 0)",
    )
    santa.add_argument(
        "--plot", metavar="PATH", help="also draw what happened, as .svg, .png or .pdf"
    )
