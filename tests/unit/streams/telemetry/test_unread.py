"""What a source has still to read has one name on the page and in metrics."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from penstock import for_each, from_iterable
from penstock.streams.telemetry.document import Document
from penstock.streams.telemetry.unread import unread
from penstock.streams.testing.plugin import Run
from tests.helpers.metrics import exposition


@pytest.mark.parametrize(
    ("numbers", "left"),
    [({"pending": 7}, 7), ({"lag": 0}, 0), ({"pending": None}, None), ({"waiting": 3}, None)],
)
def test_rows_messages_and_records_that_are_not_read_have_one_name(
    run: Run, numbers: dict[str, Any], left: int | None
) -> None:
    assert unread(numbers) == left

    async def story() -> tuple[dict[str, Any], bytes]:
        async with from_iterable([1]).to(for_each(bool)).start() as running:
            recorder = running.record()
            await running.wait()
        statistics = running.statistics()

        def known() -> dict[str, Any]:
            source, *others = statistics["stages"]
            return {**statistics, "stages": [source | numbers, *others]}

        running.statistics = known  # type: ignore[method-assign]
        document = Document(running, recorder, None, show_values=False)
        return document.now()["stages"]["1"], exposition(known(), recorder)

    shown, text = run(story())
    assert shown.get("unread") == left
    assert not {"pending", "lag"} & set(shown)
    samples = [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name == "penstock_source_pending"
    ]
    expected = {"stage": "1", "name": "from_iterable"}
    assert samples == ([] if left is None else [(expected, left)])
