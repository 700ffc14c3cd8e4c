"""The run's folder: what is in it, and what happens when parts of it are damaged or cannot be written."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

import xtx.runs.checkpoint_file
import xtx.runs.line_files
import xtx.runs.run_folder
import xtx.runs.versions
from xtx.agents.registry import AGENTS, make_preset
from xtx.cli.main import main
from xtx.config.settings import Actions, RunConfig
from xtx.core import EpisodeRecord, State, UserError
from xtx.games.game_setup import set_up_game
from xtx.games.vector.game_vector import GameVector
from xtx.runs.checkpoint_file import find_newest_checkpoint, list_checkpoints, read_checkpoint, write_checkpoint
from xtx.runs.line_files import read_episodes, read_lines
from xtx.runs.run_config import read_config
from xtx.runs.run_folder import Run
from xtx.training.loop import Training
from xtx.training.prepare import make_agent

TOY = "toy:corridor-5"
CONFIG = RunConfig(TOY, "random", {}, steps=80)
STATE: State = {
    "arrays": [np.arange(6, dtype=np.int32).reshape(2, 3), np.zeros((0, 4), np.float32)],
    "number": np.array(7.0, np.float32),  # no dimensions, as Adam's count of steps
    "columns": np.arange(12, dtype=np.float64).reshape(3, 4).T,
    "flags": np.array([True, False]),
    "big": 2**127 + 1,
    "exact": 0.1 + 0.2,
    "nothing": None,
    "bytes": [b"\x00\xff", b""],
    "text": "naïve ☃",
    "scalar": np.int64(5),
    "nested": {"a": {"b": [1, [2.5, "x", False]]}},
}


def test_a_checkpoint_gives_back_what_was_written(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "1", STATE)
    found = read_checkpoint(tmp_path / "1")
    assert list(found) == list(STATE)
    for name in ("number", "columns", "flags"):
        assert found[name].dtype == STATE[name].dtype
        assert found[name].shape == STATE[name].shape
        assert np.array_equal(found[name], STATE[name])
    for array, original in zip(found["arrays"], STATE["arrays"], strict=True):
        assert (array.dtype, array.shape) == (original.dtype, original.shape)
        assert np.array_equal(array, original)
    for name in ("big", "exact", "nothing", "bytes", "text", "scalar", "nested"):
        assert found[name] == STATE[name]
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


@pytest.mark.parametrize("wrong", [{"a": {1: 2}}, {"a": {"array": 3}}, {"a": {"bytes": ""}}])
def test_a_state_that_would_come_back_changed_is_refused(wrong: State, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="keys"):
        write_checkpoint(tmp_path / "1", wrong)


def test_every_damage_shows(tmp_path: Path) -> None:
    path = tmp_path / "1"
    write_checkpoint(path, {"a": np.arange(3), "b": 1})
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=r"damaged|not a checkpoint"):
            read_checkpoint(path)
    for length in (0, 10, 16, 48, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"damaged|not a checkpoint"):
            read_checkpoint(path)


def test_a_large_file_that_is_no_checkpoint_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "1"
    path.touch()
    os.truncate(path, 1 << 40)  # a hole: to read it would take hours and a terabyte
    with pytest.raises(ValueError, match="not a checkpoint"):
        read_checkpoint(path)
    with path.open("r+b") as file:
        file.write(b"xtx checkpoint 1")
    with pytest.raises(ValueError, match="larger than"):
        read_checkpoint(path)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.EACCES, errno.ESTALE])
def test_a_checkpoint_that_cannot_be_read_now_is_not_taken_for_damaged(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with Run.create(folder, CONFIG) as run:
        run.save(8, {"at": 8})
        run.save(16, {"at": 16})
    newest, before = list_checkpoints(folder)

    def fail(path: Path) -> State:
        if path in failing:
            raise OSError(number, os.strerror(number), str(path))
        return read_checkpoint(path)

    with monkeypatch.context() as changed:
        changed.setattr(xtx.runs.checkpoint_file, "read_checkpoint", fail)
        failing = {newest}
        with (
            Run.open(folder) as run,
            pytest.raises(UserError, match=r"move it away to go on from the one before$") as e,
        ):
            run.restore()
        assert str(newest) in str(e.value) and os.strerror(number) in str(e.value)
        newest.rename(tmp_path / "newest")
        failing = {before}
        with Run.open(folder) as run, pytest.raises(UserError, match=r"try again when that is put right$"):
            run.restore()
        (tmp_path / "newest").rename(newest)
    assert list_checkpoints(folder) == [newest, before] and not list(folder.rglob("*.damaged"))
    with Run.open(folder) as run:
        assert run.restore() == {"at": 16}


def test_a_folder_in_the_place_of_a_checkpoint_is_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with Run.create(folder, CONFIG) as run:
        run.save(8, {"at": 8})
    (folder / "checkpoints" / "0000000016").mkdir()
    with Run.open(folder) as run:
        assert run.restore() == {"at": 8}


def test_versions_beyond_any_size_are_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Run.create(tmp_path / "run", CONFIG).close()
    versions = tmp_path / "run" / "versions.json"
    os.truncate(versions, 1 << 40)
    with Run.open(tmp_path / "run") as run:
        run.restore()
    assert "versions.json is damaged" in capsys.readouterr().err
    assert len(json.loads(versions.read_text())) == 1


def test_lines_beyond_any_size_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xtx.runs.line_files, "MAX_LINE_BYTES", 64)
    folder = tmp_path / "run"
    good = [b'{"step":%d}\n' % step for step in (1, 2)]
    with Run.create(folder, CONFIG) as run:
        for step in (1, 2, 3, 4):
            run.write("metrics", {"step": step, "more": "x" * 30})
        run.save(8, {"at": 8})
    lines = folder / "metrics.jsonl"
    size = lines.stat().st_size
    lines.write_bytes(good[0] + b'{"step":1,"more":"' + b"x" * 2 * size + b'"}\n' + good[1])
    with Run.open(folder) as run:
        with pytest.raises(UserError, match=r"metrics.jsonl is damaged: line 2 cannot be read"):
            run.verify()
        run.verify(accept_changes=True)
        run.restore()
    assert lines.read_bytes() == b"".join(good)


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    write_checkpoint(tmp_path / "1", {"a": 1})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_checkpoint(tmp_path / "1", {"a": 2})
    assert read_checkpoint(tmp_path / "1") == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_a_run_keeps_the_last_two_and_the_best(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", CONFIG) as run:
        for step in (8, 16, 24, 32, 40):
            run.save(step, {"at": step}, best=step in (8, 16))
    folder = tmp_path / "run" / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == ["0000000032", "0000000040", "best"]
    assert read_checkpoint(folder / "best")["state"] == {"at": 16}
    _, newest = find_newest_checkpoint(tmp_path / "run")
    assert newest is not None
    assert newest["state"] == {"at": 40}


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOTSUP, errno.EMLINK])
def test_the_best_is_a_copy_where_there_are_no_hard_links(
    error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(old: Path, new: Path) -> None:
        raise OSError(error, os.strerror(error), str(new))

    monkeypatch.setattr(os, "link", no_links)
    folder = tmp_path / "run" / "checkpoints"
    with Run.create(tmp_path / "run", CONFIG) as run:
        for step in (8, 16, 24, 32):
            run.save(step, {"at": step}, best=step in (8, 16))
        assert sorted(path.name for path in folder.iterdir()) == ["0000000024", "0000000032", "best"]
        assert read_checkpoint(folder / "best")["state"] == {"at": 16}
        assert (folder / "best").stat().st_nlink == 1

        def full(source: IO[bytes], target: IO[bytes]) -> None:
            target.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("shutil.copyfileobj", full)
        with pytest.raises(OSError, match="No space"):
            run.save(40, {"at": 40}, best=True)
    assert read_checkpoint(folder / "best")["state"] == {"at": 16}
    assert not list(folder.glob(".*"))


def line(episode: int) -> EpisodeRecord:
    return EpisodeRecord(episode, 8, 0, 1, 1, 5, "died", 1)


def test_lines_are_cut_back_to_the_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with Run.create(folder, CONFIG) as run:
        run.write("metrics", {"step": 8})
        run.write("episodes", line(1))
        run.save(8, {"at": 8})
        run.write("metrics", {"step": 16})
        run.write("episodes", line(2))
        run.write("timing", {"step": 16})
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 2')  # torn
    assert [found["step"] for found in read_lines(folder, "metrics")] == [8, 16]
    assert [episode.episode for episode in read_episodes(folder)] == [1, 2]
    with Run.open(folder) as run:
        assert run.restore() == {"at": 8}
        run.write("metrics", {"step": 16, "again": 1})
    assert list(read_lines(folder, "metrics")) == [{"step": 8}, {"step": 16, "again": 1}]
    assert [episode.episode for episode in read_episodes(folder)] == [1]
    assert list(read_lines(folder, "timing")) == [{"step": 16}]
    assert list(read_lines(folder, "absent")) == []


@pytest.mark.parametrize("gone", [True, False])
def test_lines_that_are_missing_show(gone: bool, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with Run.create(folder, CONFIG) as run:
        run.write("metrics", {"step": 8})
        run.save(8, {})
    (folder / "metrics.jsonl").unlink() if gone else os.truncate(folder / "metrics.jsonl", 3)
    with Run.open(folder) as run, pytest.raises(UserError, match=r"metrics\.jsonl is (missing|shorter)"):
        run.restore()


def test_a_run_that_was_never_saved_begins_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with Run.create(folder, CONFIG) as run:
        run.write("metrics", {"step": 8})
    with Run.open(folder) as run:
        assert run.restore() is None
    assert not (folder / "metrics.jsonl").exists()
    assert (folder / "metrics.jsonl.old").read_bytes() == b'{"step":8}\n'


def three_saves(folder: Path) -> None:
    with Run.create(folder, CONFIG) as run:
        for step in (8, 16, 24):
            run.write("metrics", {"step": step})
            run.save(step, {"at": step})


def test_a_damaged_checkpoint_is_passed_over_and_set_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    folder = tmp_path / "run"
    three_saves(folder)
    newest, before = list_checkpoints(folder)
    os.truncate(newest, 100)
    with Run.open(folder) as run:
        assert run.restore() == {"at": 16}
        warning = capsys.readouterr().err
        assert warning == f"xtx: the checkpoint {newest} cannot be read (damaged); going on from the one before\n"
        assert [found["step"] for found in read_lines(folder, "metrics")] == [8, 16]
        # The damaged one must not take the place of a good one among the last two.
        run.save(20, {"at": 20})
        assert [path.name for path in list_checkpoints(folder)] == ["0000000020", "0000000016"]
    with Run.open(folder) as run:
        assert run.restore() == {"at": 20}
    assert capsys.readouterr().err == ""
    assert before.exists()


def test_without_a_good_checkpoint_a_run_cannot_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    three_saves(folder)
    for path in list_checkpoints(folder):
        path.write_bytes(b"")
    assert main(["resume", str(folder)]) == 2
    complaint = f"xtx: no checkpoint in {folder} can be read; start the run again in another folder\n"
    assert capsys.readouterr().err == complaint


def test_what_a_killed_process_left_is_cleared(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    three_saves(folder)
    (folder / "checkpoints" / ".0000000032.77").write_bytes(b"half a checkp")
    with Run.open(folder):
        assert {path.name for path in (folder / "checkpoints").iterdir()} == {"0000000016", "0000000024"}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"game": 3}', '{"game": "x"}'])
def test_a_damaged_config_gets_one_line(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    three_saves(tmp_path / "run")
    (tmp_path / "run" / "config.json").write_text(content)
    assert main(["resume", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"xtx: {tmp_path / 'run' / 'config.json'} is damaged (")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("game", "actions", "recorded", "told"),
    [
        ("lowwater", "templates", {"search": "1"}, "search 1 (now 8); "),
        ("lowwater", "templates", {"search": "1", "survey": "2", "whole": "3"}, "search 1 (now 8), survey 2 (now 9); "),
        ("lowwater", "whole", {"whole": "3"}, "whole 3 (now 10); "),
        ("lowwater", "templates", {"search": "8", "survey": "9", "whole": "3"}, ""),
        ("lowwater", "templates", {"search": [], "survey": None}, ""),
        ("lowwater", "templates", None, ""),
        (TOY, "templates", {"search": "1"}, ""),
    ],
)
def test_another_version_of_the_search_is_told_when_a_run_goes_on(
    game: str,
    actions: Actions,
    recorded: dict[str, object] | None,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = RunConfig(game, "random", {}, steps=80, actions=actions)
    monkeypatch.setattr(xtx.runs.versions, "search_versions", lambda: {"search": "8", "survey": "9", "whole": "10"})
    Run.create(tmp_path / "run", config).close()
    versions = tmp_path / "run" / "versions.json"
    [first] = json.loads(versions.read_text())
    versions.write_text(json.dumps([first, {**first, "searching": recorded}]))
    for expected in (told, ""):  # once: the entry of this start has the present versions
        with Run.open(tmp_path / "run") as run:
            run.restore()
        said = capsys.readouterr().err
        assert (expected in said and said.count("\n") == 1) if expected else said == ""


def test_a_damaged_list_of_versions_is_begun_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    three_saves(tmp_path / "run")
    (tmp_path / "run" / "versions.json").write_text("[{")
    with Run.open(tmp_path / "run") as run:
        run.restore()
        assert "versions.json is damaged" in capsys.readouterr().err
    assert len(json.loads((tmp_path / "run" / "versions.json").read_text())) == 1


def test_versions_of_every_start_are_kept(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", CONFIG):
        pass
    with Run.open(tmp_path / "run") as run:
        run.restore()
    starts = json.loads((tmp_path / "run" / "versions.json").read_text())
    assert len(starts) == 2
    for start in starts:
        assert set(start) == {"started", "python", "packages", "machine", "processors", "git", "searching"}
        assert {"torch", "numpy", "jericho", "xtx"} <= set(start["packages"])


def test_config_is_given_back(tmp_path: Path) -> None:
    config = RunConfig("zork1", "drrn", {"q": {"hidden": 3}}, seed=4, stochastic=True)
    with Run.create(tmp_path / "run", config):
        pass
    assert read_config(tmp_path / "run") == config


def test_a_run_from_before_there_was_a_choice_of_actions_goes_on_with_templates(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", CONFIG):
        pass
    file = tmp_path / "run" / "config.json"
    before = json.loads(file.read_text())
    del before["actions"]
    file.write_text(json.dumps(before))
    assert read_config(tmp_path / "run").actions == "templates"


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with Run.create(tmp_path / "run", CONFIG), pytest.raises(UserError, match="another process works on"):
        Run.open(tmp_path / "run")
    Run.open(tmp_path / "run").close()


def test_a_folder_in_use_is_not_overwritten(tmp_path: Path) -> None:
    three_saves(tmp_path / "run")
    with pytest.raises(UserError, match=r"go on with: .*xtx resume"):
        Run.create(tmp_path / "run", CONFIG)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match="give another --out"):
        Run.create(tmp_path / "mine", CONFIG)
    (tmp_path / "file").write_text("x")
    for place in ("file", "file/below"):
        with pytest.raises(UserError, match="give another --out"):
            Run.create(tmp_path / place, CONFIG)
    (tmp_path / "empty").mkdir()
    Run.create(tmp_path / "empty", CONFIG).close()


def test_a_full_disk_closes_everything(tmp_path: Path) -> None:
    """One error, and no complaint from a file that is left open: warnings are errors here."""
    run = Run.create(tmp_path / "run", CONFIG)
    run.write("metrics", {})
    run.write("episodes", {})
    files = list(run._files.values())
    run._files = {f"{number}": open("/dev/full", "wb") for number in range(2)}  # noqa: SIM115
    for file in run._files.values():
        file.write(b"x")
    with pytest.raises(OSError, match="No space"):
        run.close()
    for file in files:
        file.close()
    Run.open(tmp_path / "run").close()  # the lock is free


def test_git_state_outside_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert xtx.runs.versions.describe_commit() == ""


# --- docs/metrics.md ------------------------------------------------------------------------------------------------


def defined(heading: str) -> set[str]:
    """The names in the first column of the tables under a heading of docs/metrics.md, those of subheadings included."""
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    [section] = [part for part in re.split(r"^## ", page, flags=re.M) if part.startswith(f"{heading}\n")]
    return set(re.findall(r"^\| `([\w.]+)` \|", section, flags=re.M))


def flat(settings: dict[str, Any], above: str = "") -> set[str]:
    found: set[str] = set()
    for name, value in settings.items():
        found |= flat(value, f"{above}{name}.") if isinstance(value, dict) else {above + name}
    return found


def small(agent: str) -> Any:
    """The agent's own settings, at a size at which all that can happen happens within seconds."""
    settings: Any = make_preset(agent, "")
    if hasattr(settings, "q"):
        settings = replace(settings, q=replace(settings.q, hidden=8, batch_size=8))
    if hasattr(settings, "imitation"):
        imitation = replace(settings.imitation, width=8, layers=1, heads=1, passes=1)
        settings = replace(settings, imitation=imitation, first_training=5, explore_steps=3)
    if hasattr(settings, "epsilon_decay"):
        settings = replace(settings, hidden=8, embedding=8, batch_size=8)
    return settings


def test_every_number_is_defined(tmp_path: Path) -> None:
    """What runs of all agents write is what docs/metrics.md defines, no more and no less."""
    written: dict[str, set[str]] = {"metrics": set(), "episodes": set(), "rooms": set(), "timing": set()}
    settings: set[str] = set()
    for agent in AGENTS:
        kept = asdict(small(agent))
        settings |= flat(kept)
        games = 1 if "rc-dqn" in agent else 4
        config = RunConfig(TOY, agent, kept, steps=30 * games, num_envs=games, log_every=5)
        game_setup = set_up_game(TOY)
        with (
            Run.create(tmp_path / agent, config) as run,
            contextlib.closing(GameVector(game_setup.spec, games, 0)) as vector,
        ):
            Training(run, make_agent(config, "cpu", game_setup.walkthrough), vector).run()
        for name, keys in written.items():
            for found in read_lines(tmp_path / agent, name):
                keys |= set(found)
    assert written["episodes"] == {field.name for field in fields(EpisodeRecord)}
    for name, keys in written.items():
        assert defined(f"{name}.jsonl") == keys
    assert defined("config.json") == {field.name for field in fields(RunConfig)} | settings
    live = json.loads((tmp_path / "random" / "live.json").read_text())
    inner = {f"{name}.{key}" for name in ("turns", "envs") for key in live[name][0]}
    assert defined("live.json") == set(live) | inner and len(live["envs"]) == 4
    start = json.loads((tmp_path / "random" / "versions.json").read_text())[0]
    assert defined("versions.json") == set(start)
