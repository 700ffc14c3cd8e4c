"""docs/guarantees.md names tests that exist, and as many as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "guarantees.md"


def test_counts_of_tests() -> None:
    stated = {name: int(count) for name, count in re.findall(r"`([\w/*]+(?:\.py|/))` (\d+)", PAGE.read_text())}
    assert len(stated) > 10
    paths = {name: sorted(TESTS.glob(name)) for name in stated}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    collect = subprocess.run(
        [*command, *{str(path) for found in paths.values() for path in found}],
        cwd=TESTS.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    files = Counter(line.partition("::")[0] for line in collect.stdout.splitlines() if "::" in line)
    collected = {
        name: sum(
            count for file, count in files.items() if any((TESTS.parent / file).is_relative_to(path) for path in found)
        )
        for name, found in paths.items()
    }
    assert stated == collected


def test_files_that_are_kept() -> None:
    """As many files at which a reader failed as the page says."""
    kept = Counter(path.parent.name for path in (TESTS / "fuzz" / "corpus").glob("*/finding-*"))
    assert kept == {"checkpoint": 4, "profile": 1}
    assert "five files at which a reader failed: four checkpoints and a profile" in PAGE.read_text()
