"""How reports fit the screen: long names, and what is on the first one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xtx.cli.main import main


@pytest.mark.parametrize("width", [390, 1280])
def test_long_names_stay_in_their_cells_and_numbers_are_seen(
    browser: Any, tmp_path: Path, add_run: Callable[..., Path], width: int
) -> None:
    long = "/home/me/" + "agents_of_mine_" * 4 + ".py:" + "MyAgent" * 4
    for agent in ("random", long):
        for game in ("zork1", "detective", "game-of-mine-" * 8):
            add_run(tmp_path / "runs" / f"{agent[-5:]}-{game[:3]}", list(range(40)), agent=agent, game=game)
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page.html"), "--no-walkthroughs"]) == 0
    page = browser.open((tmp_path / "page.html").as_uri(), width, 800)
    assert page.evaluate("document.querySelectorAll('thead th.long').length")
    shown = (
        "[...document.querySelectorAll('td, th, figcaption, nav label')].filter((one) => one.getClientRects().length)"
    )
    over = f"{shown}.filter((one) => !one.matches('nav *') && one.scrollWidth > one.clientWidth + 1)"
    assert page.evaluate(f"{over}.map((one) => one.textContent)") == []
    names = "[...document.querySelectorAll('tr.long td:first-child')]"
    assert page.evaluate(f"{names}.length > 2 && {names}.every((one) => one.offsetWidth < innerWidth / 2)")
    assert page.evaluate("[...document.querySelectorAll('nav label')].every((one) => one.offsetWidth < 400)")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_first_plot_of_the_published_results_is_on_the_first_screen(browser: Any, tmp_path: Path) -> None:
    """They have more agents and games, and so more to say before it, than what other tests write."""
    results = Path(__file__).parents[2] / "results"
    assert main(["report", str(results), "--out", str(tmp_path / "page.html"), "--no-walkthroughs"]) == 0
    for width, height in ((390, 844), (1280, 800)):
        page = browser.open((tmp_path / "page.html").as_uri(), width, height)
        plots = "[...document.querySelectorAll('svg[data-plot]')].filter((one) => one.getClientRects().length)"
        assert page.evaluate(f"{plots}[0].getBoundingClientRect().bottom") <= height
        page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
        cells = "[...document.querySelectorAll('td, th')].filter((one) => one.getClientRects().length)"
        over = f"{cells}.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)"
        assert page.evaluate(over) == [], "numbers or names lie over those beside them"
