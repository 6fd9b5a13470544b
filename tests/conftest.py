"""Fixtures of the public test kit, and options of all tests."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
from collections.abc import Generator, Iterator
from contextlib import suppress
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

pytest_plugins = [
    "penstock.streams.testing.plugin",
    "tests.helpers.browser",
    "tests.helpers.servers.plugin",
    "tests.helpers.servers.command",
    "tests.helpers.servers.nats",
    "tests.helpers.kafka.mock",
    "tests.helpers.kafka.broker",
    "tests.helpers.kafka.wired",
]

# As a terminal leaves them: tests send these, and `nohup`, or a shell that starts them in the
# background, lets them and their processes ignore one.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

EXAMPLES = 100
"""How many Hypothesis makes where `--walks` is 1,000 and a test says nothing else."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--runs", type=int, default=3, help="seeded runs of each test that takes `run_seed`"
    )
    parser.addoption(
        "--walks", type=int, default=100, help="random pipelines, and of 1,000 runs of others"
    )
    parser.addoption("--walk", type=int, help="the number of the one random pipeline to make")
    parser.addoption("--case", help="of the rules of Reactive Streams: these operators, sources")
    parser.addoption("--seed", type=int, help="the first seed (drawn and printed unless given)")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    # Two more than there are cores: some tests wait for a server or a process.
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    # Not at the top: its package may not be there.
    from tests.helpers.hung_tests import EachTestOnce

    return EachTestOnce(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_configure(config: pytest.Config) -> None:
    if config.option.seed is None:
        # A worker of pytest-xdist takes the seed of the process that started it: all must
        # collect the same tests.
        given: dict[str, int] = getattr(config, "workerinput", {})
        drawn = 0 if os.environ.get("CI") else random.randrange(1_000_000)
        config.option.seed = given.get("seed", drawn)
    # Pytest-xdist would begin with the files of the most tests, and end with one that takes long.
    config.option.loadscopereorder = False
    config.addinivalue_line("markers", "walks: makes random runs, as many as --walks says")
    # Not at the top, as below.
    from tests.helpers.walks import ask_for, some_of

    ask_for(config.option.walks)
    # A deadline would be an assertion about the machine. In CI the examples are always the same, so
    # that a commit gives the same answer twice; elsewhere new ones are tried.
    in_ci = bool(os.environ.get("CI"))
    settings.register_profile(
        "penstock", deadline=None, max_examples=some_of(EXAMPLES), derandomize=in_ci
    )
    settings.load_profile("penstock")


@pytest.fixture(scope="module", autouse=True)
def frozen() -> None:
    """What the tests import stays until their end: no collection of garbage looks through it."""
    # Some tests unfreeze it; Python 3.12 freezes a few hundred objects itself.
    if gc.get_freeze_count() < 10_000:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays, too: to look through it time and again takes a third as long."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The pages come first, because their file takes longest."""
    items.sort(key=lambda item: item.path.parent.name != "pages")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["seed"] = node.config.option.seed


def pytest_terminal_summary(terminalreporter: Any) -> None:
    # Not at the top: plugins must not be imported before pytest does.
    from tests.helpers.kafka.broker import HAS_KAFKA

    skipped = [report.nodeid for report in terminalreporter.getreports("skipped")]
    if not HAS_KAFKA and any("test_kafka" in name for name in skipped):
        terminalreporter.write_line("left out: Kafka's own brokers, for want of Java 17 and Maven")


def pytest_report_header(config: pytest.Config) -> str:
    return f"seeds: {config.option.runs} from {config.option.seed} (--runs, --seed)"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `run_seed` runs once for each of `--runs` seeds."""
    if "run_seed" in metafunc.fixturenames:
        first = metafunc.config.option.seed
        metafunc.parametrize("run_seed", range(first, first + metafunc.config.option.runs))


@pytest.fixture
def is_late_run(request: pytest.FixtureRequest, run_seed: int) -> bool:
    """Whether this is one of the last fifth of `--runs`, which have three servers, not one."""
    options = request.config.option
    return bool(run_seed - options.seed >= options.runs - options.runs // 5)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test in a loop of its own, on real time: for servers that are real."""
    if not iscoroutinefunction(pyfuncitem.function):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.function(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def no_open_files() -> Iterator[None]:
    """A test leaves no more files open than there were."""

    def open_files() -> set[tuple[str, str]]:
        """Their numbers and what they are, which tells a new file from one that had its number."""
        found = set()
        for link in folder.iterdir() if folder.exists() else ():
            with suppress(FileNotFoundError):  # the folder itself, which was open while it was read
                found.add((link.name, os.readlink(link)))
        return found

    folder = Path("/proc/self/fd")
    before = open_files()
    yield
    if open_files() - before:
        # What is left to the collector is not left open.
        gc.collect()
    assert open_files() <= before
