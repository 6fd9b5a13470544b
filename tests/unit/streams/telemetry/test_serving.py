"""The page, metrics and health of a running over HTTP, on the loopback interface."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import pytest
from aiohttp import ClientSession
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from penstock import Fixed, Inbox, adaptive_flat_map, for_each, inbox, web_app
from penstock.streams.base.errors import BuildError
from penstock.streams.pipelines.running import Running
from penstock.streams.telemetry.serving import Serving


class Scene(NamedTuple):
    client: ClientSession
    running: Running
    serving: Serving
    inbox: Inbox[Any]


@asynccontextmanager
async def served(**options: Any) -> AsyncGenerator[Scene]:
    entries: Inbox[Any] = inbox(10)

    async def work(value: Any) -> Any:
        if value == "bad":
            raise ValueError("it is bad")
        return value

    pipeline = entries.pipe(adaptive_flat_map(work, Fixed(2), on_error="skip")).to(for_each(bool))
    async with (
        pipeline.start() as running,
        running.serve(0, **options) as serving,
        ClientSession(serving.url.partition("#")[0]) as client,
    ):
        yield Scene(client, running, serving, entries)
        running.begin_drain(5)


def play(story: Callable[[Scene], Awaitable[None]], **options: Any) -> None:
    async def scene() -> None:
        async with asyncio.timeout(20), served(**options) as found:
            await story(found)

    asyncio.run(scene())


async def lines(scene: Scene, n: int, **headers: str) -> list[dict[str, Any]]:
    async with scene.client.get("/stream", headers=headers) as response:
        assert response.status == 200
        return [json.loads(await response.content.readline()) for _ in range(n)]


@pytest.mark.parametrize("path", ["/", "/page.js", "/page.css", "/icon.svg"])
def test_the_page_loads_nothing_from_elsewhere_and_sets_no_cookie(path: str) -> None:
    async def story(scene: Scene) -> None:
        async with scene.client.get(path) as response:
            assert response.status == 200
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
            assert "Set-Cookie" not in response.headers
            text = await response.text()
            assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
            assert "https://" not in text

    play(story)


def test_all_of_the_page_is_smaller_than_two_hundred_kilobytes() -> None:
    async def story(scene: Scene) -> None:
        size = 0
        for path in ("/", "/page.js", "/page.css", "/icon.svg"):
            async with scene.client.get(path) as response:
                size += len(await response.read())
        assert size < 200_000

    play(story)


def test_the_stream_begins_with_all_and_goes_on_with_what_changes() -> None:
    async def story(scene: Scene) -> None:
        await scene.inbox.put(1)
        await scene.inbox.put("bad")
        first, second = await lines(scene, 2)
        assert [stage["name"] for stage in first["fixed"]["stages"]] == [
            "inbox",
            "adaptive_flat_map",
            "for_each",
        ]
        assert first["now"]["state"] == "running"
        merged = {**first["now"], **second["change"]}
        numbers = scene.running.statistics()
        for name in ("in", "finished", "failed", "errors"):
            assert merged[name] == numbers[name]
        assert len(second["sample"]) == len(scene.running.record().samples[-1])

    play(story)


def test_several_pages_see_the_same_and_one_that_leaves_disturbs_none() -> None:
    async def story(scene: Scene) -> None:
        found = await asyncio.gather(*(lines(scene, n) for n in (1, 3, 3)))
        assert found[1][2]["sample"] == found[2][2]["sample"]
        # Nobody looks any more, and then somebody does again.
        (again,) = await lines(scene, 1)
        assert "fixed" in again

    play(story)


def test_a_page_sees_the_end_before_its_stream_ends() -> None:
    async def story(scene: Scene) -> None:
        async with scene.client.get("/stream") as response:
            now: dict[str, Any] = json.loads(await response.content.readline())["now"]
            scene.running.begin_drain(5)
            async for line in response.content:
                now |= json.loads(line)["change"]
                if now["state"] == "closed":
                    break
        assert now["outcome"] == "completed"

    play(story)


def test_on_this_machine_everybody_may_look() -> None:
    async def story(scene: Scene) -> None:
        assert "#" not in scene.serving.url
        assert len(await lines(scene, 1)) == 1
        async with scene.client.get("/metrics") as response:
            assert response.status == 200

    play(story)


@pytest.mark.parametrize("path", ["/stream", "/metrics"])
def test_beyond_this_machine_a_token_is_needed_to_look(path: str) -> None:
    async def story(scene: Scene) -> None:
        address = f"http://127.0.0.1:{scene.serving.port}{path}"
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic right"}):
            async with scene.client.get(address, headers=header) as response:
                assert response.status == 401
        async with scene.client.get(f"{address}?token=right") as response:
            assert response.status == 401
        async with scene.client.get(address, headers={"Authorization": "Bearer right"}) as response:
            assert response.status == 200

    play(story, host="0.0.0.0", token="right")


def test_a_token_that_was_not_given_is_made_and_stands_in_the_fragment() -> None:
    async def story(scene: Scene) -> None:
        _, _, token = scene.serving.url.partition("#token=")
        assert len(token) > 20
        address = f"http://127.0.0.1:{scene.serving.port}/metrics"
        async with scene.client.get(
            address, headers={"Authorization": f"Bearer {token}"}
        ) as response:
            assert response.status == 200

    play(story, host="0.0.0.0")


@pytest.mark.parametrize("token", ["a+b", "a&b", "a#b", "a%20b", "a b", "a=b/c?d", "é"])
def test_the_page_finds_any_token_in_the_printed_address(token: str) -> None:
    async def story(scene: Scene) -> None:
        _, _, fragment = scene.serving.url.partition("#")
        # Browsers keep these characters and percent signs as they are.
        assert re.fullmatch(r"token=[A-Za-z0-9%._~-]+", fragment)
        # What the page does by URLSearchParams.
        assert parse_qsl(fragment, strict_parsing=True) == [("token", token)]

    play(story, token=token, allow_control=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_printed_address_is_one_that_is_accepted(host: str) -> None:
    async def story(scene: Scene) -> None:
        printed = scene.serving.url.removeprefix("http://").partition("/")[0]
        # The name of a machine may lead nowhere where tests run.
        address = f"http://127.0.0.1:{scene.serving.port}/"
        async with scene.client.get(address, headers={"Host": printed}) as response:
            assert response.status == 200

    play(story, host=host)


@pytest.mark.parametrize("path", ["/", "/stream", "/metrics", "/healthz", "/may"])
def test_a_name_that_is_not_ours_is_refused(path: str) -> None:
    async def story(scene: Scene) -> None:
        async with scene.client.get(path, headers={"Host": "evil.example"}) as response:
            assert response.status == 421
            said = await response.text()
            assert said.endswith("--host, or in a program by hosts= of serve() or web_app()\n")
        async with scene.client.get(path, headers={"Host": "box.example:1"}) as response:
            assert response.status == 200

    play(story, hosts=("box.example",))


@pytest.mark.parametrize("do", ["pause", "drain"])
def test_nothing_is_controlled_unless_that_was_allowed(do: str) -> None:
    async def story(scene: Scene) -> None:
        headers = {"Authorization": "Bearer right"}
        async with scene.client.post("/control", json={"do": do}, headers=headers) as response:
            assert response.status == 403
        async with scene.client.post("/control", json={"do": do}) as response:
            assert response.status == 401
        assert scene.running.state == "running"

    play(story, token="right")


def test_who_has_the_token_pauses_resumes_and_drains() -> None:
    async def story(scene: Scene) -> None:
        headers = {"Authorization": "Bearer right"}
        for do, state in (("pause", "paused"), ("resume", "running"), ("drain", "draining")):
            async with scene.client.post("/control", json={"do": do}, headers=headers) as response:
                assert (response.status, await response.json()) == (200, {"state": state})
        report = await scene.running.wait()
        assert report.outcome == "drained"

    play(story, token="right", allow_control=True)


def test_on_this_machine_too_a_token_is_needed_to_control() -> None:
    async def story(scene: Scene) -> None:
        for header in ({}, {"Authorization": "Bearer wrong"}):
            async with scene.client.post(
                "/control", json={"do": "drain"}, headers=header
            ) as response:
                assert response.status == 401
        assert scene.running.state == "running"
        assert len(await lines(scene, 1)) == 1

    play(story, token="right", allow_control=True)


@pytest.mark.parametrize(
    ("data", "kind", "status"),
    [
        (b'{"do": "pause"}', "text/plain", 415),
        (b'{"do": "pause"}', "application/x-www-form-urlencoded", 415),
        (b"pause", "application/json", 400),
        (b'{"do": "explode"}', "application/json", 400),
        (b'["pause"]', "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"do": "pause"}', "application/json; charset=utf-8", 200),
    ],
)
def test_a_command_is_json_and_known(data: bytes, kind: str, status: int) -> None:
    async def story(scene: Scene) -> None:
        headers = {"Authorization": "Bearer right", "Content-Type": kind}
        async with scene.client.post("/control", data=data, headers=headers) as response:
            assert response.status == status
        assert scene.running.state == ("paused" if status == 200 else "running")

    play(story, token="right", allow_control=True)


def test_a_command_that_breaks_off_is_no_error_of_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(scene: Scene) -> None:
        head = (
            "POST /control HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer right\r\n"
            "Content-Type: application/json\r\nContent-Length: 15\r\n\r\n"
        )
        _, writer = await asyncio.open_connection("127.0.0.1", scene.serving.port)
        writer.write(f'{head}{{"do": '.encode())
        await writer.drain()
        # Its head has been read once another request is answered.
        for _ in range(2):
            async with scene.client.get("/healthz") as response:
                assert response.status == 200
            writer.close()
        assert scene.running.state == "running"

    play(story, token="right", allow_control=True)
    assert caplog.records == []


def test_a_request_for_the_head_of_the_stream_leaves_the_connection_free() -> None:
    async def story(scene: Scene) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", scene.serving.port)
        for method, path in (("HEAD", "/stream"), ("GET", "/healthz")):
            writer.write(f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"content-type: application/x-ndjson" in head
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert await reader.readexactly(3) == b"ok\n"
        writer.close()

    play(story)


@pytest.mark.parametrize("path", ["/metrics/", "/stream/", "/control/"])
def test_a_foreign_name_is_nowhere_in_an_answer(path: str) -> None:
    async def story(scene: Scene) -> None:
        headers = {"Host": "evil.example"}
        async with scene.client.get(path, headers=headers, allow_redirects=False) as response:
            assert response.status == 404
            assert "evil.example" not in f"{response.headers}{await response.text()}"

    play(story)


def test_health_and_readiness_say_one_word_and_need_no_token() -> None:
    async def story(scene: Scene) -> None:
        base = f"http://127.0.0.1:{scene.serving.port}"
        async with scene.client.get(f"{base}/healthz") as response:
            assert (response.status, await response.text()) == (200, "ok\n")
        async with scene.client.get(f"{base}/readyz") as response:
            assert (response.status, await response.text()) == (200, "ready\n")
        scene.running.begin_drain(5)
        async with scene.client.get(f"{base}/readyz") as response:
            assert (response.status, await response.text()) == (503, "no\n")

    play(story, host="0.0.0.0")


def test_a_paused_pipeline_is_alive_and_ready_again_when_it_is_resumed() -> None:
    async def story(scene: Scene) -> None:
        async def answers() -> list[tuple[int, str]]:
            found: list[tuple[int, str]] = []
            for path in ("/healthz", "/readyz"):
                async with scene.client.get(path) as response:
                    found.append((response.status, await response.text()))
            return found

        scene.running.pause()
        assert await answers() == [(200, "ok\n"), (503, "no\n")]
        scene.running.resume()
        assert await answers() == [(200, "ok\n"), (200, "ready\n")]

    play(story)


def test_metrics_are_what_the_statistics_say() -> None:
    async def story(scene: Scene) -> None:
        for value in (1, 2, "bad"):
            await scene.inbox.put(value, wait=value != "bad")
        async with scene.client.get("/metrics") as response:
            assert response.headers["Content-Type"].startswith("application/openmetrics-text")
            text = await response.text()
        numbers = scene.running.statistics()
        samples = {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        assert samples["penstock_events_in_total",] == numbers["in"] == 3
        assert samples["penstock_events_total", "finished"] == numbers["finished"] == 2
        assert samples["penstock_events_total", "failed"] == numbers["failed"] == 1
        assert samples["penstock_errors_total", "ValueError"] == 1
        assert samples["penstock_limit", "2", "adaptive_flat_map"] == 2
        assert samples["penstock_stage_sent_total", "2", "adaptive_flat_map"] == 2
        assert samples["penstock_latency_seconds_count", "total"] == 2
        assert samples["penstock_latency_seconds_bucket", "+Inf", "service"] == 2
        assert samples["penstock_state", "running"] == 1

    play(story)


def test_a_port_that_is_taken_is_an_error_that_says_what_to_do() -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            async with inbox(1).to(for_each(bool)).start() as running:
                with pytest.raises(BuildError, match=f"cannot listen on 127.0.0.1:{port}.*or 0"):
                    running.serve(port)

    asyncio.run(story())


@pytest.mark.parametrize("host", ["a..b", 64 * "x", "192.0.2.1"])
def test_an_address_that_is_none_of_this_machine_is_an_error_that_names_it(host: str) -> None:
    async def story() -> None:
        async with inbox(1).to(for_each(bool)).start() as running:
            with pytest.raises(BuildError, match=f"cannot listen on {host}:0.*another address"):
                running.serve(0, host)

    asyncio.run(story())


def test_an_application_that_would_need_a_token_is_refused_without_one() -> None:
    for options in ({"allow_control": True}, {"host": "0.0.0.0"}):
        with pytest.raises(BuildError, match="give it a token"):
            web_app(**options)  # type: ignore[arg-type]


def test_signals_stay_with_the_process() -> None:
    import signal

    async def story(scene: Scene) -> None:
        assert signal.getsignal(signal.SIGTERM) is before

    before = signal.getsignal(signal.SIGTERM)
    play(story)
