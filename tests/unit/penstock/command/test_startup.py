from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.start import IMPORTS, write_pipeline

Process = Callable[..., "subprocess.CompletedProcess[str]"]

# What a run of the README's pipeline loads, by folder.
LOADED = {
    "penstock": "__main__",
    "penstock.command": "dispatch explain interrupt output",
    "penstock.command.arguments": "parsers pipelines",
    "penstock.command.pipelines": "load logs options printed report run status_line",
    "penstock.operators": "adaptive_flat_map distinct_within group_by spread",
    "penstock.sinks": "jsonl",
    "penstock.sources": "jsonl",
    "penstock.streams.base": "ahead clock compiled duration errors extras keys pages recorded "
    "take_front validation",
    "penstock.streams.boundary": "async_items inner_stream once",
    "penstock.streams.diagnostics": "blocked_loop current loop_lag",
    "penstock.streams.event_time": "above",
    "penstock.streams.execution": "batch_turns call calling_stage flushing_stage gate handler "
    "iterators limit_control options plain_stage results retry slot_task slots timeouts waiting "
    "worker_stage",
    "penstock.streams.failures": "dead_letters error_policy policy",
    "penstock.streams.groups": "grouped",
    "penstock.streams.io": "body compression descriptor encoding file_end following letter_line "
    "line_format line_sinks line_source line_writer lines paths reader",
    "penstock.streams.io.inputs": "patterns",
    "penstock.streams.keyed": "distinct key_faults overflow queues spill stage turnover",
    "penstock.streams.limits": "choice default fixed hill_climb limiter shared slow_start tally "
    "window windowed",
    "penstock.streams.pipelines": "flowable pipeline running",
    "penstock.streams.protocol": "acknowledgement blame event fields identity numbering stage "
    "stage_info",
    "penstock.streams.running": "broadcast description handle open_sinks report",
    "penstock.streams.runtime": "arrivals attachments changeable channels context depth error_log "
    "nested_runs observing overrides places slot sources tasks timer wait",
    "penstock.streams.runtime.process": "loading os_signals standard_streams unrun",
    "penstock.streams.rx": "apply bounds lift ours",
    "penstock.streams.stages": "demand_stage forgetting sink_stage source_stage stream time_slice "
    "user_stage",
}
# Modules of others, besides those that are imported with these or with asyncio.
OTHERS = {"argparse", "gettext", "importlib", "importlib._abc", "importlib.util", "zlib"}

ADVICE = (
    "each module takes a quarter of a millisecond or more at every start: import what a run of the "
    "README's pipeline does not use where it is used, inside a function, and list in this file "
    "what it does use"
)


def test_a_run_of_the_readmes_pipeline_loads_the_modules_that_are_listed_and_no_others(
    process: Process, tmp_path: Path
) -> None:
    code = (
        f"{IMPORTS}; import sys\n"
        "before = set(sys.modules)\n"
        "from penstock.__main__ import main\n"
        f"sys.argv = ['penstock', 'run', {str(write_pipeline(tmp_path))!r}]\n"
        "status = main()\n"
        "print(status, *sorted(set(sys.modules) - before), file=sys.stderr)"
    )
    lines = '{"uuid": 1, "client_id": 1}\n'
    result = process([sys.executable, "-c", code], input=lines)
    assert result.stdout == lines.replace(" ", "")
    status, *loaded = result.stderr.splitlines()[-1].split()
    assert status == "0"
    own = {name for name in loaded if name.startswith("penstock.")}
    listed = {f"{folder}.{name}" for folder, names in LOADED.items() for name in names.split()}
    folders = {".".join(name.split(".")[:n]) for name in listed for n in range(2, 6)}
    # The file itself, and what Cython has in modules that it has compiled.
    neither = ("penstock", "kata", "_cython", "cython")
    others = {name for name in loaded if not name.startswith(neither)}
    strangers = sorted((own - folders - listed) | (others - OTHERS))
    assert not strangers, f"loaded, and not listed: {', '.join(strangers)}; {ADVICE}"
    unused = sorted(listed - own)
    assert not unused, f"listed, and loaded no more: {', '.join(unused)}; take them off the list"


COUNTS_WHAT_IS_FROZEN = """
async def frozen(event):
    return gc.get_freeze_count() > 1000, gc.get_threshold()[0] > 10_000

pipeline = read_jsonl().pipe(adaptive_flat_map(frozen)).to(write_jsonl())
"""


def test_where_nothing_else_runs_the_collector_comes_seldom_and_leaves_out_what_is_loaded(
    process: Process, write_file: Callable[[str, str], Path]
) -> None:
    file = write_file("frozen.py", "import gc\n" + COUNTS_WHAT_IS_FROZEN)
    result = process([sys.executable, "-m", "penstock", "run", str(file)], input="{}\n")
    assert result.stdout == "[true,true]\n"


def test_a_run_within_another_program_leaves_its_collector_alone(
    process: Process, write_file: Callable[[str, str], Path]
) -> None:
    file = write_file("frozen.py", "import gc\n" + COUNTS_WHAT_IS_FROZEN)
    code = f"from penstock.__main__ import main; main(['run', {str(file)!r}])"
    result = process([sys.executable, "-c", code], input="{}\n")
    assert result.stdout == "[false,false]\n"
