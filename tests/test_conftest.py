"""Where tests are required, none of them is skipped in silence."""

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

@pytest.mark.gpu
def test_device():
    pytest.skip("no GPU here")

@pytest.mark.long
def test_for_hours():
    pass
"""


@pytest.mark.parametrize(
    ("folder", "variables", "outcome"),
    [
        (None, {}, "5 skipped, 1 deselected"),
        (None, {"XTX_REQUIRE_ROMS": "1"}, "2 skipped, 1 deselected, 3 errors"),
        (None, {"XTX_REQUIRE_ALL": "1"}, "1 failed, 4 skipped, 1 deselected"),
        (None, {"XTX_SLOW": "1"}, "1 passed, 5 skipped"),
        ("games", {}, "1 passed, 4 skipped, 1 deselected"),
        ("games", {"XTX_REQUIRE_ROMS": "1"}, "2 failed, 1 passed, 2 skipped, 1 deselected"),
        ("games", {"XTX_REQUIRE_ROMS": "0", "XTX_REQUIRE_ALL": "0"}, "1 passed, 4 skipped, 1 deselected"),
        ("games", {"XTX_REQUIRE_ROMS": "1", "XTX_REQUIRE_ALL": "1"}, "3 failed, 1 passed, 1 skipped, 1 deselected"),
    ],
)
def test_required_tests(folder: str | None, variables: dict[str, str], outcome: str, tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  roms\n  gpu\n  long\n")
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "games").mkdir()
    games = str(tmp_path / folder) if folder else ""
    plain = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "XTX_REQUIRE_ROMS": "", "XTX_REQUIRE_ALL": "", "XTX_SLOW": ""}
    environment = {**os.environ, **plain, "XTX_GAMES": games, **variables}
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
