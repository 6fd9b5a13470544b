from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

HANDLER = """
import os

def work(event):
    os.read({gate}, 1)
    return event

pipeline = read_jsonl().pipe(adaptive_flat_map(work)).to(write_jsonl())
"""


def test_a_handler_that_never_returns_is_reported_during_the_wait(
    script: list[str], write_file: Callable[[str, str], Path]
) -> None:
    # Takes the second that a handler has before it counts as blocking.
    gate, opener = os.pipe()
    path = write_file("job.py", HANDLER.format(gate=gate))
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*script, "run", str(path)],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
        pass_fds=[gate],
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write('{"n": 1}\n')
        process.stdin.flush()
        warning = process.stderr.readline()
        os.write(opener, b".")
        out, err = process.communicate(timeout=30)
    os.close(gate)
    os.close(opener)
    assert re.fullmatch(
        r"penstock: 'work' \(stage 2 'adaptive_flat_map'\) has blocked the loop for 1 s"
        r" on the event \{'n': 1\} \(line 1\), and is at \S+/job\.py:\d+ in work: .*\n",
        warning,
    )
    # Once is enough.
    assert "blocked" not in err
    assert (process.returncode, out) == (0, '{"n":1}\n')
