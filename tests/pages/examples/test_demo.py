from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

EXAMPLE = Path(__file__).parents[3] / "examples" / "demo.py"


def test_the_demo_prints_its_address_and_shows_events_that_come_and_go() -> None:
    command = [sys.executable, "-m", "penstock", "run", str(EXAMPLE), "--serve", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stderr is not None
        try:
            address = re.search(r"http://\S+", demo.stderr.readline())
            assert address is not None
            with urlopen(f"{address[0]}stream", timeout=20) as lines:
                lines.readline()
                samples = [json.loads(lines.readline())["sample"] for _ in range(3)]
        finally:
            demo.send_signal(signal.SIGINT)
            said = demo.stderr.read()
        assert demo.wait(30) == 3, said
    # Events arrived and finished in each second.
    assert all(sample[1] > 100 and sample[2] > 100 for sample in samples)
