"""Event pipelines that never accept more than they can process.

    from penstock import adaptive_flat_map, group_by, read_jsonl, spread, write_jsonl

Everything public of the operators, sources, sinks and streams is here by its name, and is imported
on first use. `penstock.ops` has our operators and those of reactivex. The packages
`penstock.streams.base.errors`, `penstock.streams.limits`, `penstock.streams.temporal` and
`penstock.streams.testing` have their own public names; everything else is private, except what
docs/how-to/own-operator.md uses to write operators, sources and sinks of your own.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if os.environ.get("PENSTOCK_PURE", "0") not in ("", "0"):
    from penstock.streams.base.compiled import import_sources

    import_sources(os.path.dirname(__file__))

from penstock.streams.rx import ours

if TYPE_CHECKING:
    from penstock import ops
    from penstock.operators.adaptive_flat_map import adaptive_flat_map
    from penstock.operators.batch import batch
    from penstock.operators.chunk import chunk
    from penstock.operators.count_over_time import count_over_time
    from penstock.operators.database_table import database_table
    from penstock.operators.distinct_within import distinct_within
    from penstock.operators.event_time import event_time
    from penstock.operators.group_by import group_by
    from penstock.operators.in_processes import in_processes
    from penstock.operators.in_threads import in_threads
    from penstock.operators.join import join
    from penstock.operators.lookup import lookup
    from penstock.operators.monitor import monitor
    from penstock.operators.rate_limit import RateLimit, rate_limit
    from penstock.operators.spread import spread
    from penstock.operators.stateful import stateful
    from penstock.operators.table import table
    from penstock.operators.using import using
    from penstock.operators.violations import violations
    from penstock.operators.window import window
    from penstock.sinks.collect import collect
    from penstock.sinks.csv import write_csv
    from penstock.sinks.dead_letter import dead_letters
    from penstock.sinks.for_each import for_each
    from penstock.sinks.jetstream import write_jetstream
    from penstock.sinks.jsonl import write_jsonl
    from penstock.sinks.kafka import write_kafka
    from penstock.sinks.latency import latency_histogram
    from penstock.sinks.objective import objective
    from penstock.sinks.table import write_table
    from penstock.sources.csv import read_csv
    from penstock.sources.inbox import Inbox, inbox
    from penstock.sources.jetstream import read_jetstream
    from penstock.sources.jsonl import read_jsonl
    from penstock.sources.kafka import read_kafka
    from penstock.sources.lines import read_lines
    from penstock.sources.queue_stats import queue_stats
    from penstock.sources.table import read_table
    from penstock.sources.work import WorkPool
    from penstock.streams.aggregates import agg
    from penstock.streams.base.errors import PenstockError, Snooze
    from penstock.streams.boundary.from_observable import (
        buffer,
        drop_newest,
        drop_oldest,
        error,
        latest,
    )
    from penstock.streams.failures.backoff import Backoff
    from penstock.streams.failures.policy import DeadLetter, retry, route
    from penstock.streams.groups.grouped import Group
    from penstock.streams.kafka.record import KafkaRecord
    from penstock.streams.limits.fixed import Fixed
    from penstock.streams.limits.hill_climb import HillClimb
    from penstock.streams.limits.shared import Shared
    from penstock.streams.pipelines.flowable import Flowable
    from penstock.streams.pipelines.from_iterable import from_async_iterable, from_iterable
    from penstock.streams.pipelines.lift import lift
    from penstock.streams.pipelines.pipeline import Pipeline, run
    from penstock.streams.pipelines.running import Report, Running
    from penstock.streams.protocol.event import Event
    from penstock.streams.sql_queue.periodic import Periodic
    from penstock.streams.stages.own import SinkStage
    from penstock.streams.stages.sink_stage import Sink
    from penstock.streams.state.context import Context
    from penstock.streams.state.store import Store
    from penstock.streams.telemetry.web_app import web_app
    from penstock.streams.windows.shapes import calendar, session, sliding, tumbling
    from penstock.streams.windows.window import Window

__version__ = "0.1.0"

__all__ = [
    "Backoff",
    "Context",
    "DeadLetter",
    "Event",
    "Fixed",
    "Flowable",
    "Group",
    "HillClimb",
    "Inbox",
    "KafkaRecord",
    "PenstockError",
    "Periodic",
    "Pipeline",
    "RateLimit",
    "Report",
    "Running",
    "Shared",
    "Sink",
    "SinkStage",
    "Snooze",
    "Store",
    "Window",
    "WorkPool",
    "adaptive_flat_map",
    "agg",
    "batch",
    "buffer",
    "calendar",
    "chunk",
    "collect",
    "count_over_time",
    "database_table",
    "dead_letters",
    "distinct_within",
    "drop_newest",
    "drop_oldest",
    "error",
    "event_time",
    "for_each",
    "from_async_iterable",
    "from_iterable",
    "group_by",
    "in_processes",
    "in_threads",
    "inbox",
    "join",
    "latency_histogram",
    "latest",
    "lift",
    "lookup",
    "monitor",
    "objective",
    "ops",
    "queue_stats",
    "rate_limit",
    "read_csv",
    "read_jetstream",
    "read_jsonl",
    "read_kafka",
    "read_lines",
    "read_table",
    "retry",
    "route",
    "run",
    "session",
    "sliding",
    "spread",
    "stateful",
    "table",
    "tumbling",
    "using",
    "violations",
    "web_app",
    "window",
    "write_csv",
    "write_jetstream",
    "write_jsonl",
    "write_kafka",
    "write_table",
]

# The public names of each module.
_PUBLIC = {
    "operators.adaptive_flat_map": ("adaptive_flat_map",),
    "operators.batch": ("batch",),
    "operators.chunk": ("chunk",),
    "operators.count_over_time": ("count_over_time",),
    "operators.database_table": ("database_table",),
    "operators.distinct_within": ("distinct_within",),
    "operators.event_time": ("event_time",),
    "operators.group_by": ("group_by",),
    "operators.in_processes": ("in_processes",),
    "operators.in_threads": ("in_threads",),
    "operators.join": ("join",),
    "operators.lookup": ("lookup",),
    "operators.monitor": ("monitor",),
    "operators.rate_limit": ("rate_limit", "RateLimit"),
    "operators.spread": ("spread",),
    "operators.stateful": ("stateful",),
    "operators.table": ("table",),
    "operators.using": ("using",),
    "operators.violations": ("violations",),
    "operators.window": ("window",),
    "sinks.collect": ("collect",),
    "sinks.csv": ("write_csv",),
    "sinks.dead_letter": ("dead_letters",),
    "sinks.for_each": ("for_each",),
    "sinks.jetstream": ("write_jetstream",),
    "sinks.jsonl": ("write_jsonl",),
    "sinks.kafka": ("write_kafka",),
    "sinks.latency": ("latency_histogram",),
    "sinks.objective": ("objective",),
    "sinks.table": ("write_table",),
    "sources.inbox": ("inbox", "Inbox"),
    "sources.jetstream": ("read_jetstream",),
    "sources.csv": ("read_csv",),
    "sources.jsonl": ("read_jsonl",),
    "sources.kafka": ("read_kafka",),
    "sources.lines": ("read_lines",),
    "sources.queue_stats": ("queue_stats",),
    "sources.table": ("read_table",),
    "sources.work": ("WorkPool",),
    "streams.pipelines.from_iterable": (
        "from_async_iterable",
        "from_iterable",
    ),
    "streams.boundary.from_observable": (
        "buffer",
        "drop_newest",
        "drop_oldest",
        "error",
        "latest",
    ),
    "streams.base.errors": ("PenstockError", "Snooze"),
    "streams.failures.backoff": ("Backoff",),
    "streams.failures.policy": (
        "DeadLetter",
        "retry",
        "route",
    ),
    # A module that is a name.
    "ops": ("ops",),
    "streams.pipelines.flowable": ("Flowable",),
    "streams.kafka.record": ("KafkaRecord",),
    "streams.groups.grouped": ("Group",),
    "streams.limits.fixed": ("Fixed",),
    "streams.limits.hill_climb": ("HillClimb",),
    "streams.limits.shared": ("Shared",),
    "streams.pipelines.pipeline": (
        "Pipeline",
        "run",
    ),
    "streams.protocol.event": ("Event",),
    "streams.sql_queue.periodic": ("Periodic",),
    "streams.stages.own": ("SinkStage",),
    "streams.stages.sink_stage": ("Sink",),
    # A module that is a name, as `ops`.
    "streams.aggregates.agg": ("agg",),
    "streams.state.context": ("Context",),
    "streams.state.store": ("Store",),
    "streams.pipelines.running": (
        "Report",
        "Running",
    ),
    "streams.pipelines.lift": ("lift",),
    "streams.telemetry.web_app": ("web_app",),
    "streams.windows.shapes": (
        "calendar",
        "session",
        "sliding",
        "tumbling",
    ),
    "streams.windows.window": ("Window",),
}

# A module in these packages has the page of its first name at the top.
_WITH_PAGES = ("operators.", "sinks.", "sources.")


def _operator_of_rx(name: str) -> Any:
    from penstock.operators import rx

    return getattr(rx, name)


ours.find = _operator_of_rx

# Hidden from type checkers, which would take any name for a good one.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        for place, names in _PUBLIC.items():
            if name in names:
                module = import_module(f"{__name__}.{place}")
                value = getattr(module, name, module)
                if place.startswith(_WITH_PAGES) and name == names[0]:
                    from penstock.streams.base.pages import show_page

                    show_page(value)
                globals()[name] = value
                return value
        import sys

        from penstock.missing import missing

        raise missing(name, sys._getframe(1))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
