"""tests/behaviour_digests.py gives the same digests for the same behaviour, and others for another."""

from __future__ import annotations

from pathlib import Path

import behaviour_digests as digests

from xtx.games.catalog.known_games import find_default_game, find_story


def test_a_run_without_networks_is_the_same_on_every_machine(tmp_path: Path) -> None:
    """Its lines hold nothing that depends on a processor or on torch, so their digests can stand here."""
    found = digests.train(tmp_path, "run", "toy:corridor-5", "random", 160)
    assert found == {
        "metrics": "74f9fe752f440a1928d2459f77a7a455",
        "episodes": "c87aa8415b2a727e121973cd65e7dd7b",
        "rooms": "964bc081bab398dcc288270ab8544fe2",
    }
    other = digests.train(tmp_path, "other", "toy:corridor-5", "random", 160, "--seed", "1")
    assert other["episodes"] != found["episodes"]


def test_states_have_the_same_digests_every_time() -> None:
    path = str(find_story(find_default_game()).path)
    first = list(digests.states_of(path, 3))
    assert len(set(first)) == 3 and list(digests.states_of(path, 3)) == first
