"""Count the readings of each device, and raise an alarm when one is silent for thirty seconds.

    penstock run examples/devices.py -- readings.jsonl alarms.jsonl devices.db

Each line of the readings has a device, a time and a value. A reading sets the timer of its device
again, so the timer is due thirty seconds after the last one. Then the device may have sent more
while no pipeline ran, which is not read yet: so a short timer follows, and the alarm is raised when
that is due. When the device sends again, the alarm is taken back.

    {"device": "boiler 3", "at": "2026-03-02T06:00:10", "celsius": 61.2}
    {"device": "boiler 3", "alarm": true, "since": "2026-03-02T06:00:10", "readings": 1}

The states, the timers and the position in the file are in one store. So the pipeline can be killed
and started again: it counts each reading once, and raises an alarm for a device that fell silent
meanwhile.
"""

from __future__ import annotations

import sys
from typing import Any

from penstock import Context, Store, read_jsonl, stateful, write_jsonl

SILENCE, GRACE = 30, 2

State = dict[str, Any]
Results = list[dict[str, Any]]

START: State = {"readings": 0, "last": None, "silent": False}


def reading(state: State, event: dict[str, Any], ctx: Context) -> tuple[State, Results]:
    back: Results = []
    if state["silent"]:
        back = [{"device": ctx.key, "alarm": False, "at": event["at"]}]
    ctx.cancel("grace")
    ctx.timer("silence", after=SILENCE)
    return {"readings": state["readings"] + 1, "last": event["at"], "silent": False}, back


def silent(state: State, timer: str, ctx: Context) -> tuple[State, Results]:
    if timer == "silence":
        ctx.timer("grace", after=GRACE)
        return state, []
    alarm = {"alarm": True, "since": state["last"], "readings": state["readings"]}
    return {**state, "silent": True}, [{"device": ctx.key, **alarm}]


readings, alarms, file = [*sys.argv[1:], "readings.jsonl", "alarms.jsonl", "devices.db"][:3]
store = Store(file)
pipeline = (
    read_jsonl(readings, follow=True, position=store)
    .pipe(stateful(reading, by="device", start=START, on_timer=silent, name="devices", store=store))
    .to(write_jsonl(alarms, append=True))
)
