"""The navigation: every page of docs/ in one section, by kind of page."""

from __future__ import annotations

__all__ = ["HOME", "SECTIONS"]

HOME = "index.md"

# Titles are the pages' own, where none is given.
SECTIONS: dict[str, list[str]] = {
    "Tutorial": ["tutorial.md"],
    "How to": [
        "how-to/run-a-file.md",
        "how-to/files.md",
        "how-to/application.md",
        "how-to/notebook.md",
        "how-to/session.md",
        "how-to/failures.md",
        "how-to/replay-dead-letters.md",
        "how-to/draining.md",
        "how-to/memory.md",
        "how-to/testing.md",
        "how-to/own-operator.md",
        "web-service.md",
        "how-to/crawler.md",
        "prompts.md",
        "batches.md",
        "table-queue.md",
        "how-to/order-per-customer.md",
        "live-page.md",
        "report-page.md",
        "traces.md",
        "how-to/container.md",
        "how-to/systemd.md",
        "several-cores.md",
        "how-to/survive-a-crash.md",
        "how-to/counts-per-minute.md",
        "many-machines.md",
        "jetstream.md",
        "kafka.md",
        "work-pulling.md",
        "monitors.md",
        "learning.md",
        "workflows.md",
        "counts.md",
    ],
    "Reference": [
        "operators.md",
        "statistics.md",
        "reference/delivery.md",
        "reference/reactivex.md",
        "names.md",
        "reference/errors.md",
        "known-limits.md",
    ],
    "Explanation": [
        "explanation/demand.md",
        "explanation/order.md",
        "explanation/limit.md",
        "explanation/state.md",
        "limits.md",
        "explanation/inside.md",
        "architecture.md",
        "kata.md",
        "santa.md",
        "spreader.md",
        "evidence.md",
    ],
    "Coming from": [
        "rx.md",
        "migration/asyncio-queue.md",
        "migration/celery-arq.md",
        "migration/bytewax-faust.md",
        "compared.md",
    ],
    "Project": [
        "project/CHANGELOG.md",
        "project/CONTRIBUTING.md",
        "project/SECURITY.md",
        "project/LICENSE.md",
    ],
}
