"""The documents say what is there: Python in them runs, commands and options in them exist, links lead somewhere."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from xtx.cli.main import COMMANDS, main
from xtx.runs import run_folder

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
NAVIGATION = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
IN_GUIDES = re.findall(r": (\S+\.md)$", NAVIGATION.partition("  - Guides:\n")[2].partition("\n  - ")[0], re.MULTILINE)
GUIDES = [ROOT / "README.md", *(ROOT / "docs" / name for name in ("index.md", "quickstart.md", *IN_GUIDES))]
"""What people read to do something: every command and every Python block in these pages runs."""

PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def read_blocks(page: Path) -> list[str]:
    """The Python blocks of a page."""
    return PYTHON.findall(page.read_text("utf-8"))


def read_commands(page: Path) -> list[str]:
    """The lines of a page's indented blocks that call xtx, without comments."""
    lines = re.findall(r"^ {4,}(?:\.venv/bin/)?(xtx .*)$", page.read_text("utf-8"), re.MULTILINE)
    return [line.split(" #")[0].strip() for line in lines]


NOT_RUN = {
    "xtx watch": "serves until it is stopped; tests/web runs it",
    "xtx games profile": "needs what Inform leaves behind; tests/games/catalog/test_profile.py runs it",
    "xtx games verify": "needs commands that win; tests/games/discovery/test_discovery.py runs it",
    "xtx games add story.z5 --profile": "needs that profile",
    "xtx sweep demo --ray": "needs a cluster; tests/sweep/test_sweep_ray.py runs it",
    "xtx sweep paper-deterministic --ray": "needs a cluster; tests/sweep/test_sweep_ray.py runs it",
}
SHORT = {
    "train": {"--steps": "80", "--workers": "1"},
    "evaluate": {"--episodes": "2"},
    "play": {"--steps": "3", "--delay": "0"},
    "sweep": {"--dry-run": "", "--games": "lowwater"},
    "games check": {"--limit": "3"},
    "report": {"--no-walkthroughs": ""},
}
"""Options that make a command short; everything else of it is as it is printed."""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a person who reads the guides: with runs, stories, and what the pages say is in files."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "downloads").mkdir()
    (folder / "docs" / "results").mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "results" / "full.md", folder / "docs" / "results")
    shutil.copytree(ROOT / "results" / "dragon", folder / "results" / "dragon")
    shutil.copy(ROOT / "stories" / "hang" / "hang.z5", folder / "story.z5")
    for copy in ("zork1.z5", "downloads/zork1.z5"):
        shutil.copy(ROOT / "xtx" / "games" / "catalog" / "data" / "lowwater.z5", folder / copy)
    (folder / "my_agent.py").write_text(read_blocks(ROOT / "docs" / "your-agent.md")[0])
    package = folder / "my_agent-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: my-agent\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[xtx.agents]\nmine = my_agent:TableAgent\n")
    toml = (ROOT / "docs" / "sweeps.md").read_text("utf-8").partition("```toml\n")[2].partition("```")[0]
    assert 'games = ["zork1", "library*", "stories/mine.z5"]' in toml
    (folder / "mine.toml").write_text(toml.replace('"zork1", "library*", "stories/mine.z5"', '"lowwater"'))
    call(folder, "games add story.z5")
    for seed, name in enumerate(("runs/first", "runs/paper/first")):
        call(folder, f"train toy:corridor-5 --agent xtx-demo --seed {seed} --steps 80 --workers 1 --out {name}")
    shutil.copytree(folder / "runs" / "first", folder / "other" / "run")
    call(folder, "export runs/first --play 1 --out episodes.jsonl")
    return folder


def call(folder: Path, line: str) -> None:
    """Give a command in that folder, with everything of the user's in it."""
    words = [sys.executable, "-m", "xtx.cli", *shlex.split(line.replace("~", str(folder)))]
    done = run_there(folder, words)
    assert done.returncode == 0, f"xtx {line}: {done.stderr[-2000:]}"


def run_there(folder: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a program with the folder as the user's home; packages in it are found."""
    owned = {name: str(folder / name) for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HOME")}
    environment = {**os.environ, **owned, "PYTHONPATH": str(folder)}
    return subprocess.run(
        words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240
    )


@pytest.mark.parametrize("page", [page for page in GUIDES if read_blocks(page)], ids=lambda page: page.name)
def test_python_in_the_guides_runs(page: Path, reader: Path) -> None:
    done = run_there(reader, [sys.executable, "-c", "\n".join(read_blocks(page))])
    assert done.returncode == 0, done.stderr


COMMANDS_IN_GUIDES = dict.fromkeys(line for page in GUIDES for line in read_commands(page))


@pytest.mark.parametrize("line", [c for c in COMMANDS_IN_GUIDES if not c.startswith(tuple(NOT_RUN))])
def test_commands_in_the_guides_run(line: str, reader: Path) -> None:
    words = line.removeprefix("xtx ")
    command = next(name for name in (" ".join(words.split()[:2]), words.split()[0]) if name in COMMANDS)
    words = re.sub(r"\bzork[13]\b(?!\.z5)", "lowwater", words.replace("RUN", "runs/first"))
    if not (command == "play" and "--agent" not in words):  # by hand it takes no steps
        for option, value in SHORT.get(command, {}).items():
            words = f"{re.sub(rf'{option} [^-]+', '', words)} {option} {value}"
    call(reader, words)


@cache
def read_help(command: str) -> str:
    """The whole help of a command."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([*command.split(), "--help-all"])
    return out.getvalue()


@pytest.mark.parametrize("page", [page for page in PAGES if read_commands(page)], ids=lambda page: page.name)
def test_commands_in_the_documents_exist(page: Path) -> None:
    for line in read_commands(page):
        words = shlex.split(line.replace("...", ""))[1:]
        names = [" ".join(words[:2]), words[0] if words else ""]
        command = next((name for name in names if name in COMMANDS), None)
        if words and words[0].startswith("-"):
            continue
        assert command is not None, f"{page.name}: {line}"
        if "mine" in words:  # an agent with options of its own, which the page defines
            continue
        for option in re.findall(r"(?<!\S)(--[a-z][\w.-]*)", line):
            known = read_help(command) + (read_help("train") if command in ("compare", "bench") else "")
            assert option in known or option == "--help-all", f"{page.name}: {line}: {option}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_programs_and_targets_in_the_documents_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    for target in re.findall(r"(?:^ {4,}|`)make ([a-z-]+)", text, re.MULTILINE):
        assert target in targets, target
    for program in re.findall(r"(?<![/\w])((?:benchmarks|examples|tests|tools|docs|xtx)/[\w/-]+\.\w+)", text):
        assert (ROOT / program).exists(), program


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text("utf-8")):
        target = link.partition("#")[0]
        if target and "://" not in link:
            assert (page.parent / target).exists(), link


def test_the_pages_that_are_read_first_are_short() -> None:
    limits = {"README.md": 150, "docs/results.md": 150, "docs/speed.md": 120}
    lengths = {name: len((ROOT / name).read_text("utf-8").splitlines()) for name in limits}
    assert all(lengths[name] <= limit for name, limit in limits.items()), lengths


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: str(page.relative_to(ROOT)))
def test_lists_are_the_same_on_the_site_as_in_the_repository(page: Path) -> None:
    """The site's Markdown needs an empty line before a list or a table and after what is indented below an item, and
    four spaces in a list for what belongs to an item; else it runs into the text."""
    lines = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL).split("\n")
    is_below_item = False  # an indented paragraph that begins after an empty line
    for before, line in pairwise(lines):
        if re.match(r"- |\d+\. |\|", line):
            assert re.match(r"$|- |\d+\. |\||  ", before), f"no empty line before: {line}"
            assert not is_below_item or not before, f"no empty line before: {line}"
        is_below_item = line.startswith("    ") and (is_below_item or not before)
        nested = re.match(r"( +)(- |\d+\. )", line)
        if nested or not before:
            assert (len(line) - len(line.lstrip())) % 4 == 0, f"not a multiple of four spaces: {line}"


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/notes/*.md")), ids=lambda page: page.name)
def test_a_note_begins_with_its_conclusion(page: Path) -> None:
    title, conclusion = page.read_text("utf-8").split("\n\n")[:2]
    assert re.fullmatch(r"# .+", title)
    assert conclusion.startswith("**"), conclusion


def test_the_navigation_holds_every_page() -> None:
    listed = set(re.findall(r": (\S+\.md)$", NAVIGATION, re.MULTILINE))
    assert {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]} == listed - {"contributing.md", "changelog.md"}


def test_the_readme_has_the_figures_of_the_results() -> None:
    def read_rows(name: str, width: int) -> list[list[str]]:
        lines = (ROOT / name).read_text("utf-8").splitlines()
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
        return [row for row in rows if len(row) == width and row[0] != "game"]

    shown, known = read_rows("README.md", 6), read_rows("docs/results.md", 8)
    assert len(shown) == 5
    for game, agent, ours, paper, seeds, steps in shown:
        [row] = [row for row in known if row[:2] == [game, agent.lower()]]
        assert [seeds, steps] == [row[6], row[7].partition(" ")[0]]
        for told, average, best in ((ours, row[2], row[4]), (paper, row[3], row[5])):
            first, last = told.split(" / ")
            assert first == average
            assert float(last) == float(best.partition(" ")[0])  # the spread of the best is left out


def test_the_page_on_a_runs_files_names_all_of_them() -> None:
    page = (ROOT / "docs" / "reference" / "files.md").read_text("utf-8")
    names = re.findall(r"^([\w.]+/?)  +\S", run_folder.__doc__ or "", re.MULTILINE)
    assert len(names) > 10
    assert not [name for name in names if f"| `{name}` |" not in page]
