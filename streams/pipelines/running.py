"""The handle of a running pipeline, with its live page, its traces and its report page."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.streams.base.errors import BuildError
from penstock.streams.running.handle import Handle
from penstock.streams.running.report import Outcome, Report

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from penstock.streams.telemetry.serving import Serving

__all__ = ["Outcome", "Report", "Running"]


class Running(Handle):
    """One run of a pipeline, created by `Pipeline.start` on a running loop."""

    def report_page(
        self, path: str | os.PathLike[str], *, title: str | None = None, show_values: bool = False
    ) -> None:
        """Write a page about the whole run to `path` when it has ended, whatever ends it.

        One file of HTML, which loads nothing else: the account of the events, the picture with its
        totals, latencies, throughput, limits with the reasons for their changes, errors, bad lines,
        the hottest keys, and the machine. It replaces an existing file atomically. `title` is its
        heading; `show_values` shows values of events, such as keys and the texts of errors. Call it
        right after `start`, because the run is recorded from the first event on (see `record`).
        Raises BuildError if it is called later, or if nothing can be written there.
        """
        from penstock.streams.telemetry.report.writing import PageWriter

        self._page = PageWriter(self, path, title, show_values=show_values).write

    def trace(
        self,
        provider: TracerProvider | None = None,
        *,
        sample: float = 1.0,
        field: str | None = "traceparent",
        show_values: bool = False,
    ) -> None:
        """Trace events by OpenTelemetry: a span for each, with a child for each call of a function.

        `provider` is that of an SDK (None: the global one). Of events without a context, the share
        `sample` is traced, if the sampler of the SDK agrees. The context is read from the `field`
        of a value, from the column of that name in a row of `read_table`, or from the header of a
        message, and put into the field of each result that is a dict, and into the header (None: no
        field and no column). `show_values`: spans have the texts of errors. With `workers`, calls
        are traced by the global provider of each process. Call it right after `start`. Raises
        BuildError if it is called later, the share is wrong, or a provider is given with `workers`,
        and MissingExtra.
        """
        if self._beginning is None:
            raise BuildError(
                "events are traced from the first one on: call trace() right after start(), before "
                "anything is awaited"
            )
        elsewhere = self._run.overrides.elsewhere
        if elsewhere and provider is not None:
            raise BuildError(
                "trace(): worker processes cannot have this provider: set the global one in the "
                "module of the pipeline, which they import, and give none here"
            )
        from penstock.streams.telemetry.traces import Tracing

        Tracing(
            self._run,
            [stream.info for stream in self._flowable.chain()],
            self._flowable.info.number,
            *(provider, sample, field),
            show_values=show_values,
            elsewhere=elsewhere,
        )

    def serve(
        self,
        port: int = 9464,
        host: str = "127.0.0.1",
        *,
        token: str | None = None,
        allow_control: bool = False,
        hosts: tuple[str, ...] = (),
        title: str | None = None,
        show_values: bool = False,
    ) -> Serving:
        """Serve a live page, metrics and health: `async with running.serve() as serving`.

        `serving.url` is the address of the page; port 0 takes a free one. Beyond the loopback
        interface, and to control the pipeline, a `token` is needed, which is made if none is given
        and is part of `url`. `hosts` are other names of this machine that requests may use, `title`
        is the heading of the page, and `show_values` shows values of events, such as keys. Call it
        right after `start`. Raises BuildError if it is called later, or the address is taken, and
        MissingExtra.
        """
        from penstock.streams.telemetry.serving import Serving

        return Serving(self, port, host, token, allow_control, hosts, title, show_values)
