"""Everything that `make` installs is pinned with checksums, and is what runs here."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(ROOT.glob("constraints*.txt"))
PIN = re.compile(r"([a-z0-9-]+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)")


def read_pins(path: Path) -> dict[str, str]:
    """Return the versions by package; every line must have a checksum."""
    pins = {}
    lines = re.sub(r" \\\n\s*", " ", path.read_text()).splitlines()
    for line in lines:
        if not line.startswith("#"):
            match = PIN.fullmatch(line)
            assert match, f"{path.name}: not a pin with checksums: {line[:80]}"
            pins[match[1]] = match[2]
    return pins


def test_no_package_is_in_two_files() -> None:
    names = [name for path in FILES for name in read_pins(path)]
    assert len(FILES) == 5 and len(names) == len(set(names)) > 100


def test_the_build_requirement_is_pinned() -> None:
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert requires == [f"{name}=={version}" for name, version in read_pins(ROOT / "constraints-build.txt").items()]


def test_what_is_installed_is_what_is_pinned() -> None:
    """Only where `make` made the environment: elsewhere other versions are fine."""
    if Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
        pytest.skip("the environment was not made by `make`")
    pins = read_pins(ROOT / "constraints-build.txt") | read_pins(ROOT / "constraints.txt")
    installed = {name: importlib.metadata.version(name).partition("+")[0] for name in pins}
    assert installed == pins
