"""A pipeline in a file whose spans are appended to `spans.jsonl`, by any number of processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["TRACED", "spans_in"]

TRACED = """
import json, os
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from penstock import *

class Lines(SpanExporter):
    def export(self, spans):
        with open("spans.jsonl", "a") as file:
            for span in spans:
                file.write(json.dumps({
                    "pid": os.getpid(), "name": span.name,
                    "trace": span.context.trace_id, "id": span.context.span_id,
                    "parent": span.parent and span.parent.span_id,
                }) + "\\n")
        return SpanExportResult.SUCCESS

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(Lines()))
trace.set_tracer_provider(provider)

def work(event):
    return {"n": event["n"], "by": os.getpid()}

pipeline = read_jsonl().pipe(adaptive_flat_map(work)).to(write_jsonl())
"""


def spans_in(folder: Path) -> list[dict[str, Any]]:
    """The spans that the processes of this folder have written."""
    lines = (folder / "spans.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
