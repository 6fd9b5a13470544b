"""Write to a stream of NATS JetStream, which others may read.

Items:   publishes every value: an object as JSON, bytes as they are; in order, except for repeated
         publications. A value that the stream has already counts as dropped, as a duplicate,
         or as finished where another sink accepts it.
Time:    at once; an event is accepted when the server has confirmed that it is stored.
Memory:  `window` events under way.
Demand:  `window` at first, then one for each that is stored.
Ends:    when everything under way is stored. Cancel returns those events; they may or may not be
         stored.
Errors:  CannotConnect ends the pipeline, and so does StreamMissing when no stream takes the first
         event, if the servers say so after 2 seconds, or after `patience` seconds. An
         unacknowledged message is published again under the same id, with growing pauses, for
         `patience` seconds; then it is PublishFailed, which says whether it may be stored. That,
         PayloadTooLarge, an id that is null, empty or not a number, and a value that is not valid
         JSON fail the event, and `on_error` applies.

    source            --a--b-----|
    server            ---a---b--
    write_jetstream   ---a---b---|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.streams.base.errors import BuildError
from penstock.streams.base.extras import require
from penstock.streams.base.keys import By, Key, key_name
from penstock.streams.base.recorded import recorded
from penstock.streams.base.validation import is_count, is_positive, is_text, require_parameters
from penstock.streams.failures.policy import OnError, check_policy, routed_by
from penstock.streams.nats.client.addresses import Servers, addresses_of
from penstock.streams.protocol.stage_info import Placement, StageInfo
from penstock.streams.runtime.context import Run
from penstock.streams.stages.sink_stage import BaseSinkStage, Closed, Sink

if TYPE_CHECKING:
    from penstock.streams.nats.streams.writing import WritingSettings

__all__ = ["write_jetstream"]


@recorded
def write_jetstream(
    subject: str | Callable[[Any], str],
    servers: Servers = "nats://localhost:4222",
    id: By[Any] | None = None,
    *,
    window: int = 256,
    patience: float = 60.0,
    on_error: OnError = "stop",
    in_workers: bool = False,
) -> Sink[Any]:
    """Publish to `subject`, which may be a function of the value.

    `id` is the field or function by which the stream recognises a value that it has already (in its
    deduplication window, by default 2 minutes); without one no value is a duplicate. `window=1`
    keeps the order whatever fails. With `in_workers` each process of a run with `workers=` has a
    connection and publishes its own results (see docs/several-cores.md). Raises BuildError for
    invalid options, MissingExtra without nats-py.

    >>> from penstock import from_iterable, write_jetstream
    >>> print(from_iterable([{"id": 1}]).to(write_jetstream("orders", id="id")))
    <Pipeline from_iterable > write_jetstream>
    """
    check_policy(on_error, "write_jetstream")
    if not callable(subject) and (not is_text(subject) or set(subject) & set(" \t\r\n*>")):
        raise BuildError(
            f"write_jetstream({subject!r}): give a subject to publish to, without blanks, * or >"
        )
    if not is_count(window) or not is_positive(patience):
        raise BuildError(
            f"write_jetstream(window={window!r}, patience={patience!r}): must be positive"
        )
    if id is not None:
        Key(id, "id")
    if callable(subject):
        require_parameters(subject, "write_jetstream(subject=...)", 1)
    require("nats", "write_jetstream needs nats-py", "cluster")
    # Slow to import, and few pipelines write there.
    from penstock.streams.nats.streams.writing import WritingSettings

    return _JetStream(
        WritingSettings(subject, addresses_of(servers), id, window, patience, on_error),
        in_workers=in_workers,
    )


class _JetStream(Sink[Any]):
    def __init__(self, settings: WritingSettings, *, in_workers: bool) -> None:
        detail = settings.subject if isinstance(settings.subject, str) else "by the value"
        if settings.id is not None:
            detail += f", id {key_name(settings.id)}"
        self.info = StageInfo(
            "write_jetstream",
            detail,
            settings.window,
            "until it is stored",
            routed=routed_by(settings.on_error),
            policy=settings.on_error,
            placement=Placement(reads=(settings.id,)),
        )
        self.in_workers = in_workers
        self._settings = settings

    def open(self, run: Run, closed: Closed) -> BaseSinkStage:
        from penstock.streams.nats.streams.writing import Writing

        return Writing(run, closed, self._settings)
