"""Event pipelines that never accept more than they can process.

    from penstock import adaptive_flat_map, group_by, read_jsonl, spread, write_jsonl

Everything public of the operators, sources, sinks and streams is here by its name, and is imported
on first use. `penstock.ops` has our operators and those of reactivex. The packages
`penstock.streams.base.errors`, `penstock.streams.limits`, `penstock.streams.temporal` and
`penstock.streams.testing` have their own public names; everything else is private, except what
docs/how-to/own-operator.md uses to write operators, sources and sinks of your own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.streams.rx import ours

if TYPE_CHECKING:
    from penstock import ops
    from penstock.operators import (
        adaptive_flat_map,
        batch,
        chunk,
        count_over_time,
        distinct_within,
        group_by,
        in_processes,
        in_threads,
        monitor,
        rate_limit,
        spread,
        stateful,
        using,
        violations,
    )
    from penstock.operators.rate_limit import RateLimit
    from penstock.sinks import (
        collect,
        dead_letters,
        for_each,
        latency_histogram,
        write_jetstream,
        write_jsonl,
        write_kafka,
        write_table,
    )
    from penstock.sources import (
        Inbox,
        WorkPool,
        inbox,
        queue_stats,
        read_jetstream,
        read_jsonl,
        read_kafka,
        read_lines,
        read_table,
    )
    from penstock.streams.base.errors import PenstockError
    from penstock.streams.boundary.from_observable import (
        buffer,
        drop_newest,
        drop_oldest,
        error,
        latest,
    )
    from penstock.streams.failures.policy import Backoff, DeadLetter, retry, route
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
    from penstock.streams.stages.own import SinkStage
    from penstock.streams.stages.sink_stage import Sink
    from penstock.streams.state.stage import Context
    from penstock.streams.state.store import Store

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
    "Pipeline",
    "RateLimit",
    "Report",
    "Running",
    "Shared",
    "Sink",
    "SinkStage",
    "Store",
    "WorkPool",
    "adaptive_flat_map",
    "batch",
    "buffer",
    "chunk",
    "collect",
    "count_over_time",
    "dead_letters",
    "distinct_within",
    "drop_newest",
    "drop_oldest",
    "error",
    "for_each",
    "from_async_iterable",
    "from_iterable",
    "group_by",
    "in_processes",
    "in_threads",
    "inbox",
    "latency_histogram",
    "latest",
    "lift",
    "monitor",
    "ops",
    "queue_stats",
    "rate_limit",
    "read_jetstream",
    "read_jsonl",
    "read_kafka",
    "read_lines",
    "read_table",
    "retry",
    "route",
    "run",
    "spread",
    "stateful",
    "using",
    "violations",
    "write_jetstream",
    "write_jsonl",
    "write_kafka",
    "write_table",
]

_PUBLIC = {
    "operators": (
        "adaptive_flat_map",
        "batch",
        "chunk",
        "count_over_time",
        "distinct_within",
        "group_by",
        "in_processes",
        "in_threads",
        "monitor",
        "rate_limit",
        "spread",
        "stateful",
        "using",
        "violations",
    ),
    "operators.rate_limit": ("RateLimit",),
    "sinks": (
        "collect",
        "dead_letters",
        "for_each",
        "latency_histogram",
        "write_jetstream",
        "write_jsonl",
        "write_kafka",
        "write_table",
    ),
    "sources": (
        "Inbox",
        "WorkPool",
        "inbox",
        "queue_stats",
        "read_jetstream",
        "read_jsonl",
        "read_kafka",
        "read_lines",
        "read_table",
    ),
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
    "streams.base.errors": ("PenstockError",),
    "streams.failures.policy": (
        "Backoff",
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
    "streams.stages.own": ("SinkStage",),
    "streams.stages.sink_stage": ("Sink",),
    "streams.state.stage": ("Context",),
    "streams.state.store": ("Store",),
    "streams.pipelines.running": (
        "Report",
        "Running",
    ),
    "streams.pipelines.lift": ("lift",),
}


def _operator_of_rx(name: str) -> Any:
    from penstock.operators import rx

    return getattr(rx, name)


ours.find = _operator_of_rx

# Hidden from type checkers, which would take any name for a good one.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        for package, names in _PUBLIC.items():
            if name in names:
                module = import_module(f"{__name__}.{package}")
                value = module if name == package else getattr(module, name)
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
