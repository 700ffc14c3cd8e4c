"""Commands that messages print run as they are printed, with or without an active environment."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from xtx.terminal import shell_command
from xtx.terminal.shell_command import format_command

SCRIPTS = Path(sys.executable).parent


@pytest.fixture(autouse=True)
def forget_program() -> None:
    shell_command._find_program.cache_clear()


def test_an_active_environment_needs_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{SCRIPTS}:/usr/bin:/bin")
    assert format_command("resume", Path("my runs/a")) == "xtx resume 'my runs/a'"


def test_the_script_is_named_relative_to_the_present_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(SCRIPTS.parents[1])
    assert format_command("games") == f"{SCRIPTS.relative_to(SCRIPTS.parents[1])}/xtx games"
    monkeypatch.chdir(tmp_path)
    assert format_command("games") == f"{SCRIPTS}/xtx games"


def test_another_xtx_on_the_path_is_not_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "xtx").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "xtx").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    assert format_command("games") == f"{SCRIPTS}/xtx games"


def test_without_a_script_python_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert format_command("games") == f"{tmp_path}/python -m xtx.cli games"


def test_what_a_run_prints_at_its_end_can_be_typed(tmp_path: Path) -> None:
    owned = {name: str(tmp_path / name) for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "HOME")}
    inactive = {**os.environ, **owned, "PATH": "/usr/bin:/bin", "COLUMNS": "200"}

    def call(line: str) -> str:
        done = subprocess.run(
            line, shell=True, cwd=tmp_path, env=inactive, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout + done.stderr

    said = call(f"{SCRIPTS}/xtx train toy:corridor-5 --agent random --steps 80 --workers 1 --out 'a run'")
    printed = re.findall(r"^ +(\S*/xtx (?:best|evaluate|games|play).*?)(?:   .*)?$", said, re.MULTILINE)
    assert len(printed) == 4, said
    for line in printed:
        call(line + (" --delay 0 --steps 3" if " play " in line else " --episodes 2" if " evaluate " in line else ""))


def test_names_with_control_characters_can_be_typed() -> None:
    name = "a\x1b[2J\nb\\c 'd\u202e"
    line = format_command("resume", name)
    assert line.isprintable()
    said = subprocess.run(["bash", "-c", f"printf %s {line.partition(' resume ')[2]}"], capture_output=True, text=True)
    assert said.stdout == name
