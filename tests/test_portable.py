"""What is packed for a machine on which nothing can be installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "tools" / "portable.py"


@pytest.fixture(scope="module")
def portable() -> ModuleType:
    spec = importlib.util.spec_from_file_location("portable", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_needed_are_our_packages_and_theirs_but_not_what_the_other_machine_has(portable: ModuleType) -> None:
    found = portable.needed(["xtx"])
    assert {"gymnasium", "lmdb", "msgspec", "rich", "safetensors", "tyro"} <= found
    assert {"pygments", "farama-notifications"} <= found, "what those need in turn"
    assert not found & {"xtx", "torch", "numpy", "jericho", "spacy", "matplotlib", "pytest"}


def test_everything_is_gathered(portable: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(portable.subprocess, "run", lambda words, check: asked.append(words))
    (tmp_path / "packed").mkdir()  # pip makes it
    portable.gather(tmp_path / "packed", "3.12", tests=True)
    assert f"msgspec=={portable.metadata.version('msgspec')}" in asked[0]
    assert asked[0][asked[0].index("--python-version") + 1] == "3.12"
    version = portable.metadata.version("xtx")
    parts = ["xtx/cli/main.py", "xtx/games/catalog/data", "jericho/jericho.py", "jericho/libfrotz.so", "pyproject.toml"]
    for name in [*parts, "docs/your-agent.md", "tools/portable.py", f"xtx-{version}.dist-info/METADATA"]:
        assert (tmp_path / "packed" / name).exists(), name
    assert not list((tmp_path / "packed").rglob("__pycache__"))


def test_a_python_that_nobody_packs_for_is_said_in_one_line(
    portable: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(words: list[str], check: bool) -> None:
        raise portable.subprocess.CalledProcessError(1, words)

    monkeypatch.setattr(portable.subprocess, "run", fails)
    monkeypatch.setattr(sys, "argv", ["portable.py", "--python", "9.9", "--out", str(tmp_path / "x.tgz")])
    assert portable.main() == 2
    assert "Python 9.9" in capsys.readouterr().err
    assert not (tmp_path / "x.tgz").exists()


def test_a_place_that_cannot_be_written_is_said_in_one_line(
    portable: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "argv", ["portable.py", "--out", str(tmp_path / "file" / "x.tgz")])
    assert portable.main() == 2
    assert capsys.readouterr().err.startswith("not packed: ")
