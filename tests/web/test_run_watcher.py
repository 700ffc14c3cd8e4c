"""Folders that are looked at again and again, whatever happens to them meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import xtx.web.run_watcher
from xtx.report.data.load_runs import RunData, find_distinct_run_folders
from xtx.report.formats.html import Piece
from xtx.report.pages.document import Document
from xtx.runs.viewer_files import Turn
from xtx.web.live_panels import make_key, make_panels, read_live
from xtx.web.run_watcher import PageSnapshot, Watcher

AddRun = Callable[..., Path]


def watch(path: Path) -> Watcher:
    return Watcher([path], lambda config: None)


def look(watcher: Watcher) -> PageSnapshot:
    """As if enough time had gone by since the last look."""
    watcher._seek_at = watcher._build_at = 0.0
    return watcher.look()


def text(snapshot: PageSnapshot) -> str:
    return "".join(piece.html for piece in snapshot.pieces)


def test_what_is_newer_than_a_version() -> None:
    page = Document("t", "l", [])
    first = PageSnapshot().make_next(page, [Piece("<main>"), Piece("a", "1"), Piece("b", "2")])
    assert first.list_changes(0) is None and first.list_changes(first.version) == {}
    second = first.make_next(page, [Piece("<main>"), Piece("a", "1"), Piece("c", "2")])
    assert second.list_changes(first.version) == {"2": "c"} and second.list_changes(second.version) == {}
    assert second.make_next(page, second.pieces) is second
    third = second.make_next(page, [*second.pieces, Piece("d", "3")])
    assert third.list_changes(first.version) is None and third.list_changes(second.version) is None
    assert third.list_changes(third.version + 1) is None, "a version of the future is another server's"
    assert third.make_next(Document("t", "other agents", []), third.pieces).list_changes(third.version) is None


def test_new_episodes_change_pieces_and_nothing_else(tmp_path: Path, add_run: AddRun) -> None:
    folder, other = add_run(tmp_path / "a", [1, 2]), add_run(tmp_path / "b", [5], seed=1)
    watcher = watch(tmp_path)
    before = look(watcher)
    assert look(watcher) is before
    add_run(folder, [7, 8])
    changed = look(watcher).list_changes(before.version)
    assert changed and any("Max 8" in html for html in changed.values())
    assert not any(str(other) in html for html in changed.values()), "what did not change is not sent"


def test_runs_come_and_go(tmp_path: Path, add_run: AddRun) -> None:
    watcher = watch(tmp_path)
    empty = look(watcher)
    assert "0 runs" in empty.document.lead and "No run is going on" in text(empty)
    folder = add_run(tmp_path / "deep" / "a", [1])
    one = look(watcher)
    assert "1 run of" in one.document.lead and one.list_changes(empty.version) is None
    shutil.rmtree(folder)
    assert "0 runs" in look(watcher).document.lead
    shutil.rmtree(tmp_path)
    assert "0 runs" in look(watcher).document.lead


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", '{"game": "toy:corr', "is damaged"),
        ("config.json", "", "is damaged"),
        ("episodes.jsonl", '{"episode": 1}\n', "is damaged"),
        ("episodes.jsonl", '{"episode": 1, "st', "no episode has ended yet"),
        ("episodes.jsonl", "\x00" * 4096, "no episode has ended yet"),
        ("rooms.jsonl", "[]\n", "rooms.jsonl is damaged"),
        ("rooms.jsonl", '{"step": 1, "origin": "a", "action": "b"}\n', "rooms.jsonl is damaged"),
        ("versions.json", "[", "versions.json is damaged"),
        ("live.json", "[[[", ""),
    ],
)
def test_what_is_half_there_does_no_harm(name: str, content: str, said: str, tmp_path: Path, add_run: AddRun) -> None:
    add_run(tmp_path / "good", [1, 2])
    (add_run(tmp_path / "half", [3], seed=1) / name).write_text(content)
    watcher = watch(tmp_path)
    seen = look(watcher)
    assert "Max 2" in text(seen) and said in text(seen)
    shutil.rmtree(tmp_path / "half")
    add_run(tmp_path / "half", [3], seed=1)
    assert "Max 3" in text(look(watcher)), "and is shown when it is whole"


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path, add_run: AddRun) -> None:
    folder = add_run(tmp_path / "a", [1])
    (folder / "episodes.jsonl").unlink()
    os.mkfifo(folder / "episodes.jsonl")
    assert "episodes.jsonl cannot be read (it is a named pipe)" in text(look(watch(tmp_path)))


def test_what_nobody_foresaw_leaves_the_last_page(
    tmp_path: Path, add_run: AddRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = add_run(tmp_path / "a", [1])
    watcher = watch(tmp_path)
    before = look(watcher)
    add_run(folder, [9])
    with monkeypatch.context() as broken:
        broken.setattr(xtx.web.run_watcher, "build", lambda *_: 1 // 0)
        assert look(watcher) is before and look(watcher) is before
    assert capsys.readouterr().err.count("ZeroDivisionError") == 1
    assert "Max 9" in text(look(watcher))


def test_each_run_is_there_once(tmp_path: Path, add_run: AddRun) -> None:
    folder = add_run(tmp_path / "a", [1])
    (tmp_path / "link").symlink_to(folder)
    assert len(find_distinct_run_folders([tmp_path, folder, tmp_path / "link"])) == 1


# --- what is going on now ---------------------------------------------------------------------------------------


def write_live(folder: Path, *turns: dict[str, object], age: float = 0.0) -> None:
    usual = {"action": "north", "phase": "", "text": "A <b>field</b>.", "score": 0, "number": 1, "ended": ""}
    live = {"step": 500, "time": time.time() - age, "turns": [usual | turn for turn in turns]}
    (folder / "live.json").write_text(json.dumps(live))


def test_what_is_played_is_shown(tmp_path: Path, add_run: AddRun) -> None:
    folder = add_run(tmp_path / "a", [1])
    start = {"action": "", "number": 0, "text": "Welcome."}
    write_live(folder, start, {"phase": "explore"}, {"score": 5, "action": "take <egg>", "ended": "died", "number": 2})
    move = {"step": 8, "origin": "House", "action": "north", "target": "Field"}
    (folder / "rooms.jsonl").write_text(json.dumps(move) + "\n")
    said = text(look(watch(tmp_path)))
    assert "500 of 10,000 steps" in said and "<i>explore</i>" in said and "Welcome." in said
    assert "take &lt;egg&gt;" in said and "<b>field" not in said
    assert "<b>+5 · 5</b>" in said and "the game ended · 5 points after 2 steps" in said
    assert said.count('class="room') == 4, "on the map of the run, and on that of the game"
    assert (
        "Environment 1 of 8 is read below." in said
        and "<b>1</b><span>5 points</span><span></span><span>step 2</span>" in said
    )
    live = json.loads((folder / "live.json").read_text())
    live["envs"] = [{"score": 5, "phase": "exploit", "number": 9}, {"score": -3, "phase": "explore", "number": 1}]
    (folder / "live.json").write_text(json.dumps(live))
    said = text(look(watch(tmp_path)))
    assert '<li class="shown"><b>1</b><span>5 points</span><span>exploit</span><span>step 9</span></li>' in said
    assert "<b>2</b><span>−3 points</span><span>explore</span><span>step 1</span></li>" in said  # noqa: RUF001


def test_only_runs_under_way_are_shown(tmp_path: Path, add_run: AddRun) -> None:
    write_live(add_run(tmp_path / "a", [1]), {}, age=3600)
    assert "No run is going on" in text(look(watch(tmp_path)))
    for seed in range(20):
        write_live(add_run(tmp_path / f"b{seed}", [1], seed=seed), {})
    said = text(look(watch(tmp_path)))
    assert said.count("<progress") == xtx.web.live_panels.MAX_PANELS and "And 12 more runs." in said
    assert make_panels([])[1].html == "<p>No run is going on at this moment.</p>"


def test_nonsense_is_no_live_view(tmp_path: Path) -> None:
    assert read_live(tmp_path / "nowhere") is None
    for content in (b"", b"{", b"[]", b'{"step": "x"}', b"\xff\xfe", b'{"step": 1, "time": 2, "turns": [{}]}'):
        (tmp_path / "live.json").write_bytes(content)
        assert read_live(tmp_path) is None


def test_keys_of_runs_differ(tmp_path: Path) -> None:
    assert make_key(tmp_path / "a") != make_key(tmp_path / "b") and make_key(tmp_path / "a").isalnum()


# --- many runs --------------------------------------------------------------------------------------------------


def test_many_runs_are_on_several_pages(tmp_path: Path, add_run: AddRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xtx.web.run_watcher, "PAGE_SIZE", 3)
    folders = [add_run(tmp_path / f"run-{number}", [number], seed=number) for number in range(7)]
    watcher = watch(tmp_path)
    pages = {number: text(look_at(watcher, number)) for number in (1, 2, 3)}
    for number, folder in enumerate(folders):
        shown = [page for page, html in pages.items() if f"{folder}: " in html]
        assert shown == [number // 3 + 1], "each run is on one page"
    assert "Runs 1 to 3 of 7" in pages[1] and "Runs 4 to 6 of 7" in pages[2] and "Runs 7 to 7 of 7" in pages[3]
    assert '<a href="/?page=2">2</a>' in pages[1] and "<b>2</b>" in pages[2]
    assert "No run is going on" in pages[1] and "No run is going on" not in pages[2]
    before = watcher.get_snapshot(2)
    add_run(folders[4], [77])
    changed = look_at(watcher, 2).list_changes(before.version)
    assert changed and any("Max 77" in html for html in changed.values())
    assert "7 runs of" in watcher.get_snapshot(3).document.lead


def look_at(watcher: Watcher, page: int) -> PageSnapshot:
    watcher._seek_at = watcher._build_at = 0.0
    return watcher.look(page)


def test_runs_are_read_as_far_as_there_is_time(
    tmp_path: Path, add_run: AddRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xtx.web.run_watcher, "READ_SECONDS", 0.0)
    for number in range(3):
        add_run(tmp_path / f"run-{number}", [number], seed=number)
    watcher = watch(tmp_path)
    assert "1 run of" in look(watcher).document.lead and "2 more runs are being read" in text(watcher.get_snapshot())
    assert "2 runs of" in look(watcher).document.lead
    for number in range(3):
        add_run(tmp_path / f"run-{number}", [50 + number])
    assert "3 runs of" in look(watcher).document.lead and "being read" not in text(watcher.get_snapshot())
    for _ in range(2):  # what was read longest ago is read first, so all have their turn
        look(watcher)
    assert all(f"Max {50 + number}" in text(watcher.get_snapshot()) for number in range(3))


def test_slow_games_do_not_keep_a_page_waiting(
    tmp_path: Path, add_run: AddRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xtx.web.run_watcher, "FIND_SECONDS", 0.05)
    for number in range(4):
        add_run(tmp_path / f"run-{number}", [5], seed=number, steps=80)
    asked: list[str] = []

    def find_turns(run: RunData) -> list[Turn]:
        asked.append(run.folder.name)
        time.sleep(0.1)
        return [Turn("", "", f"The beginning of {run.folder.name}.", 0, 0)]

    watcher = Watcher([tmp_path], lambda config: None, find_turns)
    assert text(look(watcher)).count("The beginning of") == 1 and asked == ["run-0"]
    for shown in (2, 3, 4, 4):
        assert text(look(watcher)).count("The beginning of") == shown
    assert asked == [f"run-{number}" for number in range(4)], "each once"
