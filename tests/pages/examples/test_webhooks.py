from __future__ import annotations

import re
import subprocess
import sys


def test_each_payment_is_booked_once_however_often_its_call_comes() -> None:
    command = [sys.executable, "-m", "examples.webhooks", "--payments", "300", "--kills", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    *days, last = done.stdout.splitlines()
    told = [re.findall(r"[\d,]+(?= calls| payments| ids)", day) for day in days]
    calls, booked, remembered = zip(*[map(int, day) for day in told], strict=True)
    assert sum(calls) > 300
    assert booked[-1] == 300
    # Ids that are older than three days are forgotten.
    assert remembered[0] == booked[0]
    assert remembered[-1] < booked[-1]
    assert last == f"300 payments, {sum(calls)} calls; each payment booked once: True"
