"""What a tried consumer did wrong, in words."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.command.kata.observe import Measured
from penstock.command.kata.trial import Trial
from penstock.command.output import counted

__all__ = ["broken_promises"]

_MOST = 3
_MOST_ERRORS = 10


def broken_promises(run: Measured, trial: Trial) -> list[str]:
    """A line for each sort of fault; none if every promise of the kata was kept."""
    return [
        f"  {name}: {text}"
        for name, count, text in (
            (
                "duplicates",
                run.duplicates_processed,
                f"{counted(run.duplicates_processed, 'event')} processed within 10 s of another "
                "with the same uuid",
            ),
            (
                "overlapped",
                run.overlapped,
                f"{counted(run.overlapped, 'event')} begun while another of the client was "
                f"processed; {_most(run.overlaps)}",
            ),
            (
                "overtaken",
                run.overtaken,
                f"{counted(run.overtaken, 'event')} finished after a later one of the client; "
                f"{_most(run.overtakings)}",
            ),
            ("lost", run.lost, f"{counted(run.lost, 'event')} not processed, or not to the end"),
            (
                "unfinished",
                run.unfinished,
                f"{counted(run.unfinished, 'event')} left a second after the end of the load",
            ),
        )
        if count
    ] + _errors(trial)


def _most(clients: Mapping[int, int]) -> str:
    first = sorted(clients.items(), key=lambda pair: (-pair[1], pair[0]))[:_MOST]
    named = ", ".join(f"{client} ({count})" for client, count in first)
    return f"of {counted(len(clients), 'client')}, most of {named}"


def _errors(trial: Trial) -> list[str]:
    found = sorted(trial.errors.items(), key=lambda pair: -pair[1][1])
    lines = [
        f"  error: {line}: {text} ({counted(count, 'time')})"
        for (line, _), (text, count) in found[:_MOST_ERRORS]
    ]
    if len(found) > _MOST_ERRORS:
        lines.append(f"  error: at {counted(len(found) - _MOST_ERRORS, 'other place')}")
    if trial.stuck is not None:
        lines.append(f"  stuck: at {trial.stuck}, long after the end of the load")
    return lines
