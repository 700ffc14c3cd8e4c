"""A report on paper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xtx.cli.main import main


def test_paper_has_the_names_of_the_colours_and_whole_tables(
    browser: Any, tmp_path: Path, add_run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for agent in ("random", "walkthrough", "mine"):
        add_run(tmp_path / "runs" / agent, list(range(40)), agent=agent)
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page.html")]) == 0
    page = browser.open((tmp_path / "page.html").as_uri(), 390, 800)
    page.evaluate("document.querySelector('nav input[value=mine]').click()")
    page.call("Emulation.setEmulatedMedia", media="print")
    shown = "[...document.querySelectorAll('nav label')].filter((one) => one.getClientRects().length)"
    assert page.evaluate(f"{shown}.map((one) => one.textContent)") == ["random", "walkthrough"]
    assert page.evaluate("getComputedStyle(document.querySelector('nav input')).display") == "none"
    assert page.evaluate("getComputedStyle(document.querySelector('.swatch')).printColorAdjust") == "exact"
    boxes = "[...document.querySelectorAll('.scroll')]"
    cut = "getComputedStyle(one).overflowY !== 'visible' || getComputedStyle(one).maskImage !== 'none'"
    assert page.evaluate(f"{boxes}.length && !{boxes}.some((one) => {cut})")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.querySelectorAll('details').length && !document.querySelector('details[open]')")
