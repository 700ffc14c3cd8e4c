"""The files of a run that are for viewers: rooms.jsonl and live.json."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

import xtx.runs.viewer_files
from xtx.config.settings import RunConfig
from xtx.core import Decision, Observation, Step
from xtx.runs.line_files import read_lines
from xtx.runs.run_folder import Run
from xtx.runs.viewer_files import TURNS, LiveState, ViewerFiles, find_room_name


@pytest.mark.parametrize(
    ("look", "name"),
    [
        ("Sennet Quay\nGranite, gulls, and no sea.", "Sennet Quay"),
        ("\n  Tide Office  \nOne room.", "Tide Office"),
        ("Bedroom (on the bed)\nA room.", "Bedroom"),
        ("Frigid River, in the magic boat\nA river.", "Frigid River"),
        ("Mrs. Robner's Room\nA room.", "Mrs. Robner's Room"),
        ("Room 3 of 5. There is a key here.", "Room 3 of 5"),
        ("It is pitch black. You are likely to be eaten by a grue.", "It is pitch black"),
        ("Where now?", "Where now?"),
        ("", ""),
        ("x" * 500, "x" * 80),
    ],
)
def test_what_a_room_is_called(look: str, name: str) -> None:
    assert find_room_name(look) == name


def seen(look: str, step: int, text: str = "You walk on.", score: int = 0) -> Observation:
    return Observation(text, look, "", (), score, step)


def walk(witness: ViewerFiles, total: int, origin: str, action: str, target: str, **more: Any) -> None:
    step = Step(seen(target, 6), 0, more.get("terminated", False), False)
    witness.see(total, [seen(origin, more.get("step", 5))], [Decision(action, "explore")], [step])


def open_run(folder: Path) -> Run:
    return Run.create(folder, RunConfig("toy:corridor-5", "random", {}))


def test_a_way_is_noted_once(tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as run:
        witness = ViewerFiles(run)
        walk(witness, 8, "Quay\nGulls.", "north", "Office\nA desk.")
        walk(witness, 16, "Quay\nNo gulls.", "north", "Office\nA desk.")
        walk(witness, 24, "Quay\nGulls.", "wait", "Quay\nNo gulls.")
        walk(witness, 32, "Office\nA desk.", "jump", "", terminated=True)
        walk(witness, 40, "Office\nA desk.", "south", "Quay\nGulls.")
        again = ViewerFiles(run)
        again.load(witness.state())
        walk(again, 48, "Quay", "north", "Office")
        walk(again, 56, "Quay", "enter office", "Office")
    lines = [(line["step"], line["origin"], line["action"], line["target"]) for line in read_lines(run.folder, "rooms")]
    assert lines == [
        (8, "Quay", "north", "Office"),
        (40, "Office", "south", "Quay"),
        (56, "Quay", "enter office", "Office"),
    ]


def test_what_is_remembered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xtx.runs.viewer_files, "MAX_PAIRS", 3)
    with open_run(tmp_path / "run") as run:
        witness = ViewerFiles(run)
        for place in range(20):
            walk(witness, place, f"Room {place}", "east", f"Room {place + 1}")
            walk(witness, place, "Room 0", f"say {place} {'x' * 1000}", "Room 1")
    assert len(witness.state()) == 3
    assert len(list(read_lines(run.folder, "rooms"))) == 3 + xtx.runs.viewer_files.MAX_WAYS - 1
    assert (run.folder / "rooms.jsonl").stat().st_size < 3000


def test_the_newest_turns_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_run(tmp_path / "run") as run:
        witness = ViewerFiles(run)
        walk(witness, 8, "Quay", "north", "Office", step=0)
        for number in range(3 * TURNS):
            walk(witness, 16 + number, "Office", f"wait {number}", "Office")
        assert msgspec.json.decode((run.folder / "live.json").read_bytes(), type=LiveState).step == 8, (
            "not at every step"
        )
        walk(witness, 99, "Office", "jump", "", terminated=True)
        witness.end(99)
    live = msgspec.json.decode((run.folder / "live.json").read_bytes(), type=LiveState)
    assert (live.step, len(live.turns), live.turns[-1].action, live.turns[-1].ended) == (99, TURNS, "jump", "died")
    assert not list(run.folder.glob(".live*"))


def test_an_episode_begins_with_its_first_text(tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as run:
        walk(ViewerFiles(run), 8, "Quay", "north", "Office", step=0)
    live = msgspec.json.decode((run.folder / "live.json").read_bytes(), type=LiveState)
    assert [(turn.action, turn.number) for turn in live.turns] == [("", 0), ("north", 1)]


def test_nothing_is_left_lying_about(tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as run:
        (run.folder / ".live.json.123").write_text("half")
        walk(ViewerFiles(run), 8, "Quay", "north", "Office")
    assert not list(run.folder.glob(".live*"))


def test_letters_that_are_none_do_no_harm(tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as run:
        step = Step(seen("Quay", 6, "\ud800"), 0, False, False)
        ViewerFiles(run).see(8, [seen("Quay", 5)], [Decision("wait")], [step])
    assert not (run.folder / "live.json").exists()


def test_a_full_disk_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with open_run(tmp_path / "run") as run:
        monkeypatch.setattr(xtx.runs.viewer_files, "create_file", fail)
        witness = ViewerFiles(run)
        walk(witness, 8, "Quay", "north", "Office")
        monkeypatch.undo()
        monkeypatch.setattr(os, "replace", fail)
        witness.end(8)
    assert not (run.folder / "live.json").exists() and not list(run.folder.glob(".live*"))
