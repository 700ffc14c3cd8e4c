"""Where the real games are required, no test of them is skipped in silence."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

@pytest.mark.roms
def test_folder():
    pass

@pytest.mark.roms
def test_game(real_story):
    assert real_story("zork1").name == "zork1.z5"

@pytest.mark.roms
def test_skips_by_itself():
    pytest.skip("a reason")

def test_other():
    pytest.skip("nothing to do with games")
"""


@pytest.mark.parametrize(
    ("folder", "required", "outcome"),
    [
        (None, "", "4 skipped"),
        (None, "1", "1 skipped, 3 errors"),
        ("games", "", "1 passed, 3 skipped"),
        ("games", "1", "2 failed, 1 passed, 1 skipped"),
        ("games", "0", "1 passed, 3 skipped"),
    ],
)
def test_require_roms(folder: str | None, required: str, outcome: str, tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = roms\n")
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "games").mkdir()
    games = str(tmp_path / folder) if folder else ""
    plain = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment = {**os.environ, **plain, "XTX_REQUIRE_ROMS": required, "XTX_GAMES": games}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f" {outcome} in" in done.stdout.splitlines()[-1]
    assert done.returncode == ("failed" in outcome or "errors" in outcome)
