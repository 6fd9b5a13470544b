"""The options of `penstock run` besides the file, and which of them go together."""

from __future__ import annotations

import argparse
import os
from typing import Literal, NamedTuple

from penstock.streams.base.errors import BuildError

__all__ = ["Options", "Page", "ReportPage", "options_of"]

# Options that require one of others.
_GOES_WITH = {
    **dict.fromkeys(("name", "partitions", "replicas", "room", "batch", "lease"), ("on",)),
    **dict.fromkeys(("attempts", "worker", "kafka_config"), ("on",)),
    **dict.fromkeys(("host", "allow_control"), ("serve",)),
    "rotate": ("output",),
    "show_values": ("serve", "report_page", "trace"),
}


class Page(NamedTuple):
    """The options about the live page."""

    host: str
    port: int
    hosts: tuple[str, ...] = ()
    allow_control: bool = False
    show_values: bool = False
    title: str | None = None
    token: str | None = None

    @classmethod
    def of(cls, options: argparse.Namespace) -> Page | None:
        """The options of the command line; None without a page."""
        if options.serve is None:
            return None
        host, port = options.serve
        return cls(
            host,
            port,
            options.host or (),
            bool(options.allow_control),
            bool(options.show_values),
            options.file,
            os.environ.get("PENSTOCK_TOKEN") or None,
        )


class ReportPage(NamedTuple):
    """The options about the page that is written at the end."""

    path: str
    title: str
    show_values: bool = False

    @classmethod
    def of(cls, options: argparse.Namespace) -> ReportPage | None:
        """The options of the command line; None without a page."""
        if options.report_page is None:
            return None
        return cls(options.report_page, options.file, bool(options.show_values))


class Options(NamedTuple):
    """The command-line options besides the file; the deadline in seconds."""

    input: str | list[str] | None = None
    output: str | None = None
    rotate: str | None = None
    limit: tuple[int, int] | None = None
    drain_deadline: float = 20.0
    report: Literal["text", "json", "none"] = "text"
    traceback: bool = False
    arguments: tuple[str, ...] = ()
    workers: int | Literal["auto"] | None = None
    page: Page | None = None
    report_page: ReportPage | None = None
    trace: float | None = None
    show_values: bool = False
    code: str | None = None
    """The text of the pipeline, in place of a file."""
    alone: bool = False
    """The process serves only this run and ends after it."""


def options_of(options: argparse.Namespace, for_the_file: list[str]) -> Options:
    """The options of the command line. Raises BuildError for those that would be ignored."""
    _check_company(options)
    if options.code is not None and options.file is not None:
        raise BuildError(f"give either -c or the file {options.file}; what is for it goes after --")
    if options.file is None:
        options.file = "-c"
    if options.file in ("-c", "-") and (options.workers is not None or options.on is not None):
        raise BuildError(
            "other processes need a file of which they can import the handlers: write the pipeline "
            "into one"
        )
    return Options(
        options.input,
        options.output,
        options.rotate,
        options.limit,
        options.drain_deadline,
        options.report,
        options.traceback,
        tuple(for_the_file),
        options.workers,
        Page.of(options),
        ReportPage.of(options),
        options.trace,
        bool(options.show_values),
        options.code,
        options.alone,
    )


def _check_company(options: argparse.Namespace) -> None:
    """Refuse options that would be ignored: most options of servers and workers need these."""
    for option, company in _GOES_WITH.items():
        if getattr(options, option) is None or any(
            getattr(options, one) is not None for one in company
        ):
            continue
        text = f"{_named(option)} goes with {' or '.join(map(_named, company))}"
        if option == "attempts":
            text += "; in one process set it in the pipeline, by on_error=retry(times)"
        raise BuildError(text)


def _named(option: str) -> str:
    return "--" + option.replace("_", "-")
