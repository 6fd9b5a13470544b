from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.helpers.copies import run_command

HOME = Path(__file__).parents[5]


def santa(*words: str) -> subprocess.CompletedProcess[str]:
    return run_command(("santa", *words), Path.cwd())


def test_letters_are_answered_in_processes_and_the_story_is_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "santa.svg"
    ran = santa("--batches", "3", "--speed", "200", "--limit", "fixed:2", "--plot", str(picture))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("0:00:00|New jobs arriving: batch 1, ")
    assert ran.stdout.endswith("|Queue: 0, In Flight: 0, Parallelism: 2\n")
    assert "in the queue" in ran.stderr
    lines = [line.strip() for line in ran.stderr.splitlines() if "|" in line]
    assert [line.partition(" |")[0] for line in lines] == [
        *("queue", "in flight", "limit", "seconds in the system")
    ]
    assert lines[2].endswith(f"|{'█' * 60}| at most 2")
    assert picture.read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--limit", "five"), "fixed:N, hill-climb or auto"),
        (("--limit", "fixed:0"), "fixed:N, hill-climb or auto"),
        (("--learning-rate", "0.5"), "--learning-rate: only --limit hill-climb has rates"),
        (("--limit", "hill-climb", "--exploration-rate", "2"), "must be from 0 to 1"),
        (("--simulate", "--speed", "20"), "--speed is for real processes"),
        (("--shift",), "--shift: only virtual cores are taken away"),
        (("--race", "--shift", "8"), "would leave 8 of 8 cores"),
        (("--race", "--shift", "--batches", "120"), "at minute 10, when all batches have come"),
        (("--race", "--shift", "--cores", "1"), "would leave 0 of 1 cores"),
        (("--race", "--limit", "auto"), "a race has all limits"),
        (("--race", "--speed", "3"), "--speed is for real processes"),
        (("--interval", "0"), "must be above 0"),
        (("--value", "3000000000"), "at most 2147483647"),
        (("--speed", "inf"), "must be a number above 0"),
        (("--batches", "0"), "at least 1"),
        (("--plot", "no/such/folder/santa.svg"), "Cannot write no/such/folder/santa.svg"),
        (("--plot", "santa.abc"), "Cannot write santa.abc"),
        (("--plot", "santa.gif"), "the suffix says the form, and may be .svg, .png or .pdf"),
    ],
)
def test_a_wrong_option_is_reported_without_a_traceback(words: tuple[str, ...], said: str) -> None:
    ran = santa(*words)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert not ran.stdout
    assert "Traceback" not in ran.stderr


def test_a_simulated_story_is_the_same_each_time_and_has_all_its_jobs() -> None:
    words = ("--simulate", "--batches", "100", "--limit", "hill-climb", "--seed", "3")
    first, second = santa(*words), santa(*words)
    assert first.returncode == 0, first.stderr
    assert (first.stdout, first.stderr) == (second.stdout, second.stderr)
    lines = first.stdout.splitlines()
    arrived = sum(int(line.split()[-2]) for line in lines if "|New" in line)
    started = [line for line in lines if "|Started" in line]
    completed = [line for line in lines if "|Completed" in line]
    assert len(set(started)) == len(completed) == arrived > 400
    assert "needs" not in first.stderr
    other = santa(*words, "--learning-rate", "0.9", "--exploration-rate", "0.5")
    assert other.stdout != first.stdout


def test_a_load_that_cannot_be_met_is_reported() -> None:
    ran = santa("--simulate", "--batches", "2", "--cores", "2", "--limit", "naive")
    assert "needs 5.5 cores, 2 are here" in ran.stderr
    ran = santa("--simulate", "--batches", "2", "--cores", "1", "--limit", "naive")
    assert "needs 5.5 cores, 1 is here" in ran.stderr
    options = ("--max-batch", "20", "--interval", "10", "--value", "1065046850")
    half = santa("--simulate", "--batches", "2", "--cores", "5", *options)
    assert "one each 10 s" in half.stderr
    assert "0 to 20 jobs" in half.stderr
    assert half.returncode == 0


def test_all_are_processed_at_once_by_the_naive_mailbox() -> None:
    ran = santa("--simulate", "--batches", "40", "--cores", "2", "--limit", "naive")
    assert "Queue: 0, " in ran.stdout
    assert "Queue: 1" not in ran.stdout
    assert ran.stdout.count("Parallelism: unlimited") == ran.stdout.count("Parallelism: ")
    assert "1000000" not in ran.stderr


def labels(picture: Path) -> set[str]:
    return set(re.findall(r">([^<>]+)</text>", picture.read_text(encoding="utf-8")))


def test_the_plots_are_the_articles_two(tmp_path: Path) -> None:
    pictures = tmp_path / "one.svg", tmp_path / "two.svg"
    words = ("--simulate", "--batches", "30", "--limit", "hill-climb", "--plot")
    for picture in pictures:
        assert santa(*words, str(picture)).returncode == 0
    first, second = pictures
    shown = {"queue", "in flight", "parallelism", "time in the system", "time processing"}
    assert shown <= labels(first)
    assert first.read_bytes() == second.read_bytes()


def test_a_limit_that_is_never_reached_is_not_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "naive.svg"
    santa("--simulate", "--batches", "5", "--limit", "naive", "--plot", str(picture))
    assert "in flight" in labels(picture)
    assert "parallelism" not in labels(picture)


def test_a_story_without_a_letter_is_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "none.svg"
    # The first batch of this seed is empty.
    ran = santa("--simulate", "--batches", "1", "--seed", "2", "--plot", str(picture))
    assert ran.returncode == 0, ran.stderr
    assert "no job came" in ran.stderr
    assert "queue" in labels(picture)


LIMITS = ["naive", "fixed:4", "hill-climb", "auto"]


def test_a_race_has_a_line_for_each_limit_and_one_picture(tmp_path: Path) -> None:
    picture = tmp_path / "race.svg"
    ran = santa("--race", "--plot", str(picture))
    assert ran.returncode == 0, ran.stderr
    heading, *lines = ran.stdout.splitlines()
    assert "30 min of the story" in heading
    rows = [re.fullmatch(r" *(\S+) \|(.{60})\| median (\d+), .*", line) for line in lines]
    assert [row and row[1] for row in rows] == LIMITS
    medians = {row[1]: int(row[3]) for row in rows if row}
    assert medians["auto"] < medians["hill-climb"] < medians["fixed:4"]
    assert {*LIMITS, "queue", "in flight", "seconds in the system"} <= labels(picture)
    assert "cores taken away" not in labels(picture)
    assert ran.stdout == santa("--race").stdout
    # The same letters as in a story alone.
    alone = santa("--simulate", "--batches", "360", "--limit", "hill-climb").stderr
    assert f"median {medians['hill-climb']}, longest " in alone


def test_a_shift_takes_cores_away_at_minute_ten(tmp_path: Path) -> None:
    picture = tmp_path / "shift.svg"
    ran = santa("--simulate", "--shift", "5", "--limit", "naive", "--plot", str(picture))
    assert "5 from minute 10 on" in ran.stderr
    assert "needs 5.5 cores, 5 are here" in ran.stderr
    assert "cores taken away" in labels(picture)
    before, after = ran.stdout.split("|New jobs arriving: batch 121, ")
    with_all = santa("--simulate", "--batches", "360", "--limit", "naive").stdout
    assert with_all.startswith(before)
    assert not with_all.endswith(after)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("santa.svg", ("--simulate", "--limit", "hill-climb", "--batches", "360")),
        ("santa-race.svg", ("--race",)),
        ("santa-shift.svg", ("--race", "--shift")),
    ],
)
def test_the_pictures_of_the_page_are_those_that_are_drawn(
    name: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    drawn = tmp_path / name
    assert santa(*words, "--plot", str(drawn)).returncode == 0
    made_by = re.compile("<dc:title>Matplotlib .*</dc:title>")
    kept = (HOME / "docs/images" / name).read_text(encoding="utf-8")
    text = made_by.sub("", drawn.read_text(encoding="utf-8"))
    assert text == made_by.sub("", kept), "make pictures ARGS=santa"


def test_a_race_without_a_letter_is_shown_and_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "none.svg"
    ran = santa("--race", "--batches", "1", "--seed", "2", "--plot", str(picture))
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.splitlines()) == 5


def test_the_lines_of_a_race_grow_on_a_terminal() -> None:
    reader, terminal = pty.openpty()
    command = [sys.executable, "-m", "penstock", "santa", "--race", "--batches", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        # Reading fails when the process has closed its side.
        with suppress(OSError):
            while piece := os.read(reader, 65536):
                shown += piece
        os.close(reader)
        assert process.stdout is not None
        printed = process.stdout.read().decode()
    text = shown.decode()
    frames = text.split("seconds in the system, ")
    assert len(frames) > 4
    assert all("\x1b[5A" in frame for frame in frames[1:])
    assert "\x1b[J" in frames[-1]
    assert len(printed.splitlines()) == 5


@pytest.mark.parametrize("words", [("--simulate",), ("--speed", "20")])
def test_a_signal_ends_the_story_without_a_word_about_its_jobs(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "penstock", "santa", *words, "--batches", "100000"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = process.stderr.readline()
        # The story has begun.
        process.stdout.readline()
        process.terminate()
        _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert said.startswith("penstock: 100000 batches")
    assert all("needs" in line for line in err.splitlines())
