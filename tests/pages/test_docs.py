"""The pages are true: every code block is run, and prints the text under it.

The rules, which are also in CONTRIBUTING.md:

    python   a whole script; one that begins with a line such as `# double.py` is kept in the
             page's folder under that name
    toml     kept in the page's folder, under the name in its first line; so is yaml
    sh       run by bash in the page's folder, standard output and error together
    text     directly under one of the two: its output, where `...` stands for anything;
             anywhere else: text, which is not run

The blocks of a page run from top to bottom in one folder, which begins with a copy of
`examples`. A line of `sh` that begins with `make` is not run, because it builds an environment:
its target must be in the Makefile. A test of a page takes as long as its scripts, each of which
is a process.
"""

from __future__ import annotations

import csv
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from examples.open_orders import orders
from penstock.command.kata.report.table import table
from penstock.operators import rx
from penstock.streams.rx.table import SPECIAL, TABLE, Entry, Kind
from tests.helpers import time_pictures
from tests.helpers.public_names import with_pages

HOME = Path(__file__).parents[2]
PAGES = sorted([*HOME.glob("*.md"), *HOME.glob("docs/**/*.md")])

MAKING = (HOME / "CONTRIBUTING.md").read_text(encoding="utf-8")

FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]*)(#[^)]*)?\)|(?:src|href)=\"([^\"#]*)\"")
FILE_NAME = re.compile(r"# (\w+\.(?:py|toml|yaml))\n")
TARGET = re.compile(r"^([\w-]+):", re.MULTILINE)
BLOCKED = re.compile(r"^.*\b(the loop was blocked for|blocked the loop for) .*\n", re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block; `expected` is the text directly under it, None if there is none."""

    line: int
    language: str
    code: str
    expected: str | None


def blocks_of(text: str) -> list[Block]:
    found = list(FENCE.finditer(text))
    blocks: list[Block] = []
    for i, match in enumerate(found):
        language, code = match.groups()
        below = found[i + 1] if i + 1 < len(found) else None
        expected = None
        if below is not None and below[1] == "text" and language != "text":
            between = text[match.end() : below.start()]
            expected = None if between.strip() else below[2]
        blocks.append(Block(text.count("\n", 0, match.start()) + 1, language, code, expected))
    return blocks


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(HOME)) for path in paths]


def matches(expected: str, printed: str) -> bool:
    pattern = ".*?".join(map(re.escape, expected.rstrip().split("...")))
    return re.fullmatch(pattern, printed.rstrip(), re.DOTALL) is not None


def without_delays(printed: str, expected: str) -> str:
    """Without warnings that the loop was blocked: on a busy machine it may have been."""
    return printed if BLOCKED.search(expected) else BLOCKED.sub("", printed)


def without_hint(printed: str) -> str:
    """Without the hint that a file made a pipeline and ran nothing: a later block runs it."""
    return re.sub(r"^penstock: nothing ran: .*\n", "", printed, flags=re.M)


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )


def run_python(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    named = FILE_NAME.match(block.code)
    script = folder / (named[1] if named else f"block_at_line_{block.line}.py")
    script.write_text(block.code, encoding="utf-8")
    return run([sys.executable, "-W", "error", script.name], folder)


def without_make(code: str) -> tuple[str, list[str]]:
    """The lines to run, and the targets of those that are not."""
    lines = code.splitlines(keepends=True)
    made = [shlex.split(line, comments=True) for line in lines if line.startswith("make")]
    targets = [word for _, *words in made for word in words if "=" not in word]
    return "".join(line for line in lines if not line.startswith("make")), targets


def complaints(block: Block, folder: Path) -> Iterator[str]:
    """The faults of a block, after it was run."""
    if block.language == "text":
        return
    if block.language == "python":
        done = run_python(block, folder)
    elif block.language == "sh":
        code, targets = without_make(block.code)
        known = TARGET.findall((HOME / "Makefile").read_text(encoding="utf-8"))
        yield from (f"no target {name!r} in the Makefile" for name in targets if name not in known)
        if not code.strip():
            return
        done = run(["bash", "-c", code], folder)
    elif block.language in ("toml", "yaml") and (named := FILE_NAME.match(block.code)):
        (folder / named[1]).write_text(block.code, encoding="utf-8")
        return
    else:
        yield f"`{block.language}` is not run: use python, sh or text, or toml with a name"
        return
    if done.returncode:
        yield f"ended with status {done.returncode} and printed\n{done.stdout}"
        return
    printed = without_hint(done.stdout) if block.language == "python" else done.stdout
    if not matches(block.expected or "", without_delays(printed, block.expected or "")):
        yield f"printed\n{printed}\nand not\n{block.expected or 'nothing'}"


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_every_code_block_runs_and_prints_the_text_under_it(page: Path, tmp_path: Path) -> None:
    shutil.copytree(HOME / "examples", tmp_path / "examples")
    wrong = [
        f"{page.relative_to(HOME)}:{block.line}: {complaint}"
        for block in blocks_of(page.read_text(encoding="utf-8"))
        for complaint in complaints(block, tmp_path)
    ]
    assert not wrong, "\n".join(wrong)


def test_there_are_pages_with_blocks_to_run() -> None:
    run_at_all = [
        page.name
        for page in PAGES
        if any(block.language != "text" for block in blocks_of(page.read_text(encoding="utf-8")))
    ]
    assert {"README.md", "files.md"} <= set(run_at_all)


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("```python\nraise SystemExit(3)\n```\n", "ended with status 3"),
        ("```python\nprint('a')\n```\n", "printed\na"),
        ("```python\nprint('a')\n```\n\n```text\nb\n```\n", "and not\nb"),
        ("```python\nprint('a')\n```\nwords\n```text\na\n```\n", "and not\nnothing"),
        ("```sh\nfalse\n```\n", "ended with status 1"),
        ("```sh\nmake nonsense\n```\n", "no target 'nonsense'"),
        ("```js\nlet a\n```\n", "`js` is not run"),
        ("```\nbare\n```\n", "`` is not run"),
    ],
)
def test_a_wrong_block_is_reported(page: str, complaint: str, tmp_path: Path) -> None:
    (block, *_) = blocks_of(page)
    (told,) = complaints(block, tmp_path)
    assert complaint in told


def test_a_warning_of_a_busy_machine_is_not_the_fault_of_a_block(tmp_path: Path) -> None:
    page = "```python\nprint('stage 1: the loop was blocked for 0.12 s')\nprint('a')\n```\n"
    (quiet, _) = blocks_of(page + "\n```text\na\n```\n")
    assert list(complaints(quiet, tmp_path)) == []
    (loud, _) = blocks_of(page + "\n```text\nstage 1: the loop was blocked for ... s\na\n```\n")
    assert list(complaints(loud, tmp_path)) == []


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    # Code may look like a link.
    text = re.sub(r"`[^`\n]+`", "", page.read_text(encoding="utf-8"))
    targets = [one or other for one, _, other in LINK.findall(text)]
    missing = [
        target
        for target in targets
        if target and "://" not in target and not (page.parent / target).exists()
    ]
    assert missing == []


def test_the_table_of_operators_names_every_public_one_and_no_other() -> None:
    page = (HOME / "docs/operators.md").read_text(encoding="utf-8")
    tables, _, _ = page.partition("## Limits")
    listed = dict(re.findall(r"^\| `(\w+)\((.*?)\)` \|", tables, re.MULTILINE))
    public = with_pages("operators", "sources", "sinks")
    public |= {name: getattr(rx, name) for name in rx.__all__}
    assert sorted(listed) == sorted(public)
    for name, options in listed.items():
        said = [option.split("=")[0].strip(" *") for option in options.split(", ") if option]
        assert said == list(inspect.signature(public[name]).parameters), name


def test_the_operators_of_reactivex_that_are_refused_are_listed_with_their_reasons() -> None:
    page = (HOME / "docs/operators.md").read_text(encoding="utf-8")
    _, _, section = page.partition("## Operators of reactivex that are refused")
    rows = re.findall(r"^\| (`.*) \| (.*) \| (.*) \|$", section, re.MULTILINE)
    listed = [(name, why, instead) for names, why, instead in rows for name in names.split(", ")]
    refused = [
        (name, entry.why, entry.instead)
        for name, entry in (*TABLE.items(), *SPECIAL.items())
        if entry.kind is Kind.REFUSED
    ]
    unquoted = [tuple(text.replace("`", "") for text in row) for row in listed]
    assert sorted(unquoted) == sorted(refused)


def test_how_much_each_lifted_operator_holds_is_said_of_all() -> None:
    page = (HOME / "docs/reference/reactivex.md").read_text(encoding="utf-8")
    _, _, section = page.partition("## How much each operator holds")
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", section.partition("\n## ")[0], re.MULTILINE)
    listed = [re.findall(r"`(\w+)`", names) for names, _ in rows]
    lifted = [
        (name, entry) for name, entry in TABLE.items() if entry.kind in (Kind.AT_ONCE, Kind.HOLDS)
    ]

    def row(name: str, entry: Entry) -> int:
        if entry.kind is Kind.AT_ONCE:
            return 0
        if entry.latest or entry.folds:
            return 1 + entry.folds
        return 3 if entry.by_ticks else 4 if entry.counts else 5

    assert listed == [sorted(n for n, e in lifted if row(n, e) == at) for at in range(6)]


def test_every_picture_is_made_by_make_or_said_to_be_drawn_by_hand() -> None:
    by_hand = re.search(r"Of docs/images, (.*?)\.svg are drawn", MAKING, re.DOTALL)
    assert by_hand is not None
    hand = set(re.findall(r"[\w-]+", by_hand[1])) - {"and"}
    makers = [HOME / "Makefile", *HOME.glob("tests/helpers/*picture*.py")]
    made = "".join(maker.read_text(encoding="utf-8") for maker in makers)
    pictures = {path.stem for path in (HOME / "docs/images").iterdir()}
    assert {name for name in pictures if not re.search(rf'["/]{name}["./]', made)} == hand


def test_the_pictures_of_time_are_what_windows_do() -> None:
    for name, picture in time_pictures.pictures().items():
        drawn = (time_pictures.IMAGES / f"{name}.svg").read_text(encoding="utf-8")
        assert drawn == picture, "make pictures ARGS=time draws it again"


def test_the_picture_of_the_kata_is_what_draw_draws(tmp_path: Path) -> None:
    drawn = tmp_path / "kata.svg"
    command = ["penstock", "draw", "examples/kata.py", "--format", "svg", "--output", str(drawn)]
    assert run(command, HOME).stdout == ""
    text = (HOME / "docs/images/kata.svg").read_text("utf-8")
    assert drawn.read_text("utf-8") == text, "make pictures ARGS=kata"


def test_the_picture_of_the_spreader_is_what_its_page_draws(tmp_path: Path) -> None:
    page = (HOME / "docs/spreader.md").read_text("utf-8")
    (code,) = [block.code for block in blocks_of(page) if block.code.startswith("# jobs.py")]
    (tmp_path / "jobs.py").write_text(code, "utf-8")
    command = ["penstock", "draw", "jobs.py", "--format", "svg", "--output", "drawn.svg"]
    assert run(command, tmp_path).stdout == ""
    text = (HOME / "docs/images/spreader.svg").read_text("utf-8")
    assert (tmp_path / "drawn.svg").read_text("utf-8") == text, "make pictures ARGS=spreader"


def test_the_picture_of_the_counts_is_what_the_command_draws(tmp_path: Path) -> None:
    with (tmp_path / "orders.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("from", "to"), *orders(5000)])
    drawn = tmp_path / "counts.svg"
    words = ["--month", "--plot", str(drawn)]
    run(["penstock", "counts", str(tmp_path / "orders.csv"), *words], HOME)
    text = (HOME / "docs/images/counts.svg").read_text("utf-8")
    assert drawn.read_text("utf-8") == text, "make pictures ARGS=counts"


def test_the_pictures_of_a_workflow_are_what_its_page_draws(tmp_path: Path) -> None:
    page = (HOME / "docs/workflows.md").read_text(encoding="utf-8")
    drawing = [block for block in blocks_of(page) if block.language in ("sh", "python")][:6]
    assert [list(complaints(block, tmp_path)) for block in drawing] == [[]] * 6
    for drawn, image in (("shop.svg", "workflow.svg"), ("mined.svg", "mined.svg")):
        text = (HOME / "docs/images" / image).read_text("utf-8")
        assert (tmp_path / drawn).read_text("utf-8") == text, "make pictures ARGS=workflow"


def test_the_pictures_of_monitors_are_what_their_page_draws(tmp_path: Path) -> None:
    page = (HOME / "docs/monitors.md").read_text(encoding="utf-8")
    for drawn, image in (("live.svg", "monitor.svg"), ("automaton.svg", "automaton.svg")):
        (drawing,) = [block for block in blocks_of(page) if drawn in block.code]
        assert list(complaints(drawing, tmp_path)) == []
        text = (HOME / "docs/images" / image).read_text("utf-8")
        assert (tmp_path / drawn).read_text("utf-8") == text, "make pictures ARGS=monitor"


def test_the_katas_output_in_the_readme_has_the_columns_of_its_table() -> None:
    readme = (HOME / "README.md").read_text(encoding="utf-8")
    (heading,) = re.findall(r"^variant .*$", readme, re.MULTILINE)
    shown = [word for word in heading.split() if word != "..."]
    columns = table([]).split()
    assert [column for column in columns if column in shown] == shown
