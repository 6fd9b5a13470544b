"""`penstock run --workers N --trace`: spans of several processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PIPELINE = """
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


def test_the_calls_in_worker_processes_are_below_the_events_of_the_parent(tmp_path: Path) -> None:
    (tmp_path / "traced.py").write_text(PIPELINE, encoding="utf-8")
    given = "".join(json.dumps({"n": n}) + "\n" for n in range(100))
    ran = subprocess.run(
        [sys.executable, "-m", "penstock", "run", "traced.py", "--workers", "2", "--trace"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    lines = (tmp_path / "spans.jsonl").read_text(encoding="utf-8").splitlines()
    spans = [json.loads(line) for line in lines]
    events = {one["id"]: one for one in spans if one["name"].startswith("event of")}
    calls = [one for one in spans if one["name"] == "adaptive_flat_map work"]
    assert (len(events), len(calls)) == (100, 100)
    results = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {one["pid"] for one in calls} == {one["by"] for one in results}
    for call in calls:
        assert call["trace"] == events[call["parent"]]["trace"]
        assert call["pid"] != events[call["parent"]]["pid"]
    carried = {int(one["traceparent"].split("-")[2], 16) for one in results}
    assert carried == set(events)
