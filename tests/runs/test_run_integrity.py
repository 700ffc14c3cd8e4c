"""Consistency of the files of a run: changes from outside are found before a run continues."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from test_resume import config, go, lines

import xtx.runs.line_files
from xtx.cli.main import main
from xtx.config.config_file import (
    OLD_KEYS,
    ConfigError,
    OldKey,
    check_resumable,
    decode_config,
    encode_config,
    replace_old_settings,
)
from xtx.config.settings import RunConfig, XtxSettings
from xtx.core import UserError
from xtx.report.data.load_runs import convert_summary, read_run
from xtx.report.data.run_groups import group_runs
from xtx.report.data.run_summary import read_summary, summarise, to_json
from xtx.runs.checkpoint_file import list_checkpoints, read_checkpoint, write_checkpoint
from xtx.runs.line_files import read_lines
from xtx.runs.run_config import read_config
from xtx.runs.run_folder import Run

RESUME = ["--workers", "0", "--threads", "1", "--quiet", "--device", "cpu"]
EXACT = ("metrics", "episodes", "rooms")


@pytest.fixture(scope="module")
def whole(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of DRRN that was never stopped."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    go(folder, config("drrn", steps=480))
    return folder


@pytest.fixture(scope="module")
def begun(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, stopped at its second checkpoint."""
    folder = tmp_path_factory.mktemp("begun") / "run"
    go(folder, config("drrn", steps=480), stop=160)
    go(folder, stop=320)
    return folder


@pytest.fixture
def run(begun: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(begun, tmp_path / "run"))


def resume(folder: Path, *more: str) -> int:
    return main(["resume", str(folder), *RESUME, *more])


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The only line on stderr."""
    [line] = capsys.readouterr().err.splitlines()
    return str(line)


def contents(folder: Path) -> dict[str, bytes]:
    """All that a refused resume must leave as it was."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def change_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    found = json.loads((folder / "config.json").read_text())
    change(found)
    (folder / "config.json").write_text(json.dumps(found))


def replace_agent(found: dict[str, Any]) -> None:
    found |= asdict(config("xtx", steps=480))


# --- what was changed shows ----------------------------------------------------------------------------------------


def test_an_untouched_run_goes_on_exactly(run: Path, whole: Path) -> None:
    content = (run / "config.json").read_text()
    (run / "config.json").write_text(json.dumps(json.loads(content), sort_keys=True))  # another text, the same config
    assert resume(run) == 0
    assert lines(run) == lines(whole)
    assert not (run / "changes.jsonl").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c["settings"]["q"].update(gamma=0.5), r"config\.json: settings\.q\.gamma was 0\.9 and is 0\.5\. "),
        (lambda c: c.update(steps=800), r"config\.json: steps was 480 and is 800\. "),
        (lambda c: c.pop("steps"), r"config\.json: steps was 480 and is 800000\. "),
        (lambda c: c.update(seed=1), r"config\.json: seed was 0 and is 1\. "),
        (lambda c: c["settings"]["q"].pop("gamma"), r"config\.json: settings\.q\.gamma was 0\.9 and is not there\. "),
        (replace_agent, r"config\.json: agent was drrn and is xtx; .*, and \d+ more\. "),
    ],
)
def test_a_changed_config(
    change: Callable[[dict[str, Any]], object], said: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_config(run, change)
    before = contents(run)
    assert resume(run) == 2
    line = complaint(capsys)
    assert re.search(said, line), line
    assert line.endswith(f"xtx resume {run} --accept-changes")
    assert contents(run) == before


def damage_line(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(b"#" + content[1:])


def lengthen_line(path: Path) -> None:
    first, _, rest = path.read_bytes().partition(b"\n")
    path.write_bytes(first.replace(b":", b": ", 1) + b"\n" + rest)


def change_number(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(re.sub(rb'("step":)\d', rb"\g<1>3", content, count=1))


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damage_line, "is damaged: line 1 cannot be read"),
        (lengthen_line, "is not what was written"),
        (change_number, "is not what was written"),
        (lambda path: os.truncate(path, 20), "is shorter than it was: 20 of"),
        (Path.unlink, "is missing"),
    ],
)
def test_changed_lines(
    name: str, damage: Callable[[Path], None], said: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(run / f"{name}.jsonl")
    before = contents(run)
    assert resume(run) == 2
    line = complaint(capsys)
    assert f"{name}.jsonl {said}" in line and line.endswith("--accept-changes")
    assert contents(run) == before


def test_lines_behind_the_checkpoint_may_be_anything(run: Path, whole: Path) -> None:
    """They are cut off: a process that was killed may have left half of one."""
    for name in EXACT:
        with (run / f"{name}.jsonl").open("ab") as file:
            file.write(b'{"step": 400, "hal')
    assert resume(run) == 0
    assert lines(run) == lines(whole)


def test_every_byte_of_the_lines_counts(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with Run.create(folder, RunConfig("toy:corridor-5", "random", {})) as run:
        run.write("metrics", {"step": 8})
        run.write("rooms", {"step": 8, "origin": "a", "action": "b", "target": "c"})
        run.save(8, {})
    for name in ("metrics", "rooms"):
        path = folder / f"{name}.jsonl"
        content = path.read_bytes()
        for place in range(len(content)):
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            with Run.open(folder) as run, pytest.raises(UserError, match=rf"{name}\.jsonl is "):
                run.restore()
        path.write_bytes(content)
    with Run.open(folder) as run:
        assert run.restore() == {}


def test_checksums_are_kept_up_to_date_and_not_computed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint costs the same however long the lines are: they are read once, when the run goes on."""
    folder = tmp_path / "run"
    read: list[str] = []
    real = xtx.runs.line_files.open_readable

    def count(path: Path) -> Any:
        read.append(path.name)
        return real(path)

    with Run.create(folder, RunConfig("toy:corridor-5", "random", {})) as run:
        monkeypatch.setattr(xtx.runs.line_files, "open_readable", count)
        for step in range(1, 6):
            run.write("metrics", {"step": step})
            run.save(step, {})
        assert read.count("metrics.jsonl") == 1, "looked for before its first line"
        read.clear()
    with Run.open(folder) as run:
        run.restore()
        assert read.count("metrics.jsonl") == 1
        for step in range(6, 11):
            run.write("metrics", {"step": step})
            run.save(step, {})
        assert read.count("metrics.jsonl") == 1
    with Run.open(folder) as run:
        assert run.restore() == {}
    assert [line["step"] for line in read_lines(folder, "metrics")] == list(range(1, 11))


# --- changes that are accepted -------------------------------------------------------------------------------------


def test_an_accepted_gamma_is_noted(run: Path, whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_config(run, lambda c: c["settings"]["q"].update(gamma=0.5))
    assert resume(run, "--accept-changes") == 0
    [note] = read_lines(run, "changes")
    assert note["step"] == 320 and note["changes"] == ["config.json: settings.q.gamma was 0.9 and is 0.5"]
    assert read_run(run).notes == [
        "changed from outside at step 320, which was accepted: config.json: settings.q.gamma was 0.9 and is 0.5"
    ]
    assert lines(run)["metrics"][:8] == lines(whole)["metrics"][:8] and lines(run) != lines(whole)
    before, after = (to_json(summarise(read_run(folder), None)) for folder in (whole, run))
    assert "changes" not in before
    (run.parent / "seed-0.json").write_text(after)
    assert convert_summary(run, read_summary(run.parent / "seed-0.json")).changes == read_run(run).notes
    board = group_runs([read_run(run)], [], lambda game: None)
    assert any("1 run changed from outside while under way" in note for note in board.notes)
    assert resume(run) == 0, "once is enough"
    assert len(list(read_lines(run, "changes"))) == 1


def test_more_steps_are_a_change_that_can_be_accepted(run: Path, tmp_path: Path) -> None:
    go(tmp_path / "longer", config("drrn", steps=640))
    change_config(run, lambda c: c.update(steps=640))
    assert resume(run, "--accept-changes") == 0
    assert lines(run) == lines(tmp_path / "longer")


def test_an_accepted_change_holds_from_the_moment_at_which_it_is_noted(run: Path) -> None:
    """A process that is killed before its next checkpoint need not be given the option again."""
    change_config(run, lambda c: c["settings"]["q"].update(gamma=0.5))
    with Run.open(run) as opened:
        assert opened.verify(accept_changes=True) == ["config.json: settings.q.gamma was 0.9 and is 0.5"]
        assert opened.restore() is not None
    with Run.open(run) as opened:
        assert opened.verify() == []


@pytest.mark.parametrize("name", EXACT)
def test_lines_that_cannot_be_read_are_left_out(name: str, run: Path) -> None:
    path = run / f"{name}.jsonl"
    before = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([before[0], b"null\n", b"[" * 2000 + b"\n", b"#" + before[1][1:], *before[2:]]))
    altered = path.read_bytes()
    assert resume(run, "--accept-changes") == 0
    after = path.read_bytes().splitlines(keepends=True)
    assert after[: len(before) - 1] == [before[0], *before[2:]]
    assert (run / f"{name}.jsonl.old").read_bytes() == altered, "nothing is lost"
    [note] = read_lines(run, "changes")
    kept = len(before) - 1
    assert note["changes"] == [
        f"{name}.jsonl is damaged: line 2 cannot be read",
        f"{name}.jsonl: {kept} lines kept, 3 left out that cannot be read",
    ]
    assert resume(run) == 0


def test_missing_and_short_lines_can_be_accepted(run: Path) -> None:
    before = (run / "episodes.jsonl").read_bytes()
    first = before.index(b"\n") + 1
    (run / "metrics.jsonl").unlink()
    os.truncate(run / "episodes.jsonl", first + 5)
    assert resume(run, "--accept-changes") == 0
    assert (run / "episodes.jsonl").read_bytes().startswith(before[:first] + b'{"episode"')
    assert [line["step"] for line in read_lines(run, "metrics")] == [360, 400, 440, 480]
    [note] = read_lines(run, "changes")
    assert note["changes"][0] == "metrics.jsonl is missing"


class Killed(BaseException):
    """The process is gone."""


def test_a_process_that_is_killed_while_a_change_is_accepted_loses_nothing(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before each of its calls that change a name on disk, in turn; the same command then goes on to the same
    lines as one that was not killed."""
    results, calls, left = [], 0, 0

    def alter(folder: Path) -> bytes:
        lengthen_line(folder / "metrics.jsonl")
        damage_line(folder / "episodes.jsonl")
        change_config(folder, lambda c: c.update(steps=400))
        return (folder / "episodes.jsonl").read_bytes()

    real = {name: getattr(os, name) for name in ("rename", "link", "ftruncate", "fsync")}

    def call(name: str, *words: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == left:
            raise Killed
        return real[name](*words, **more)

    whole_run, killed = False, 0
    while not whole_run:
        left += 1
        folder = Path(shutil.copytree(begun, tmp_path / f"run-{left}"))
        altered, calls = alter(folder), 0
        with Run.open(folder) as opened, monkeypatch.context() as patch:
            opened.verify(accept_changes=True)
            for name in real:
                patch.setattr(os, name, lambda *words, _name=name, **more: call(_name, *words, **more))
            try:
                opened.restore()
                whole_run = True
            except Killed:
                killed += 1
        assert altered in [path.read_bytes() for path in folder.glob("episodes.jsonl*")]
        assert resume(folder, "--accept-changes") == 0
        assert len(list(read_lines(folder, "changes"))) in (1, 2)
        assert not list(folder.glob(".*"))
        results.append({name: (folder / f"{name}.jsonl").read_bytes() for name in EXACT})
    assert killed >= 10
    assert all(result == results[-1] for result in results)


def test_what_others_write_into_the_lines_while_a_run_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with Run.create(folder, RunConfig("toy:corridor-5", "random", {})) as run:
        for step in (8, 16):
            run.write("metrics", {"step": step})
            run.flush()
            with (folder / "metrics.jsonl").open("ab") as file:
                file.write(b'{"step":1}\n')
        run.save(16, {})
    with Run.open(folder) as run, pytest.raises(UserError, match=r"metrics\.jsonl is not what was written"):
        run.restore()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (replace_agent, "does not fit the agent xtx"),
        (lambda c: c.update(num_envs=4), "asks for 4 envs, but the checkpoint is of 8"),
        (lambda c: c.update(game="lowwater"), "is not a saved game of this story"),
        (lambda c: c["settings"]["q"].update(hidden=8), "does not fit the agent drrn with the settings in config.json"),
        (lambda c: c["settings"]["q"].update(gamma=7), "--q.gamma takes a number"),
    ],
)
def test_what_cannot_go_on_is_not_accepted(
    change: Callable[[dict[str, Any]], object], said: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_config(run, change)
    before = contents(run)
    assert resume(run, "--accept-changes") == 2
    assert said in complaint(capsys)
    assert contents(run) == before


@pytest.mark.parametrize("lost", ["agent", "games", "threads", "progress", "forbidden", "observations", "window"])
def test_a_checkpoint_that_lacks_something(lost: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own checksum is right, as another version's or another program's would be."""
    newest = list_checkpoints(run)[0]
    saved = read_checkpoint(newest)
    del saved["state"][lost]
    write_checkpoint(newest, saved)
    assert resume(run) == 2
    assert "another version of xtx" in complaint(capsys)


@pytest.mark.parametrize(
    "wrong", [{}, {"sizes": 3, "state": {}}, {"sizes": {"metrics": -1}, "state": {}}, {"state": 1}]
)
def test_a_checkpoint_that_is_none(wrong: dict[str, Any], run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_checkpoint(list_checkpoints(run)[0], wrong)
    assert resume(run) == 2
    assert "is not the checkpoint of a run" in complaint(capsys)


# --- runs of earlier versions --------------------------------------------------------------------------------------


def forget_ties(folder: Path) -> None:
    """Make the checkpoints what they were in versions that kept the lengths of the lines alone."""
    for path in list_checkpoints(folder):
        saved = read_checkpoint(path)
        write_checkpoint(path, {"sizes": saved["sizes"], "state": saved["state"]})


def test_a_run_of_an_earlier_version_goes_on_and_is_tied_from_then_on(
    run: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forget_ties(run)
    assert resume(run) == 0
    assert lines(run) == lines(whole)
    damage_line(run / "metrics.jsonl")
    capsys.readouterr()
    assert resume(run) == 2
    assert "metrics.jsonl is damaged: line 1" in complaint(capsys)


def test_lengths_count_in_a_run_of_an_earlier_version(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forget_ties(run)
    os.truncate(run / "rooms.jsonl", 5)
    assert resume(run) == 2
    assert "rooms.jsonl is shorter than it was: 5 of" in complaint(capsys)


# --- keys of config.json -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c.update(stpes=c.pop("steps")), "has an unknown key 'stpes'; did you mean 'steps'? Correct it"),
        (lambda c: c.update(zzz=1), "has an unknown key 'zzz'; delete it, or use one of: game, agent, settings"),
        (
            lambda c: c["settings"].update(episode_limits=5),
            "key 'settings.episode_limits'; did you mean 'episode_limit'?",
        ),
        (
            lambda c: c["settings"]["q"].update(gama=c["settings"]["q"].pop("gamma")),
            "key 'settings.q.gama'; did you mean 'gamma'?",
        ),
        (lambda c: c.update(steps=0), "cannot be used (steps takes a number from 1, not 0); correct it"),
        (lambda c: c.update(steps=10**20), "cannot be used (steps takes a number from 1 to"),
        (lambda c: c.update(seed=-1), "cannot be used (seed takes a number from 0 to"),
    ],
)
def test_keys_and_numbers_that_cannot_be(
    change: Callable[[dict[str, Any]], object], said: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forget_ties(run)  # so that nothing but the key is wrong
    change_config(run, change)
    before = contents(run)
    for more in ([], ["--accept-changes"]):
        assert resume(run, *more) == 2
        line = complaint(capsys)
        assert said in line and str(run / "config.json") in line
    assert contents(run) == before


@pytest.mark.parametrize(
    "content",
    [
        b"null",
        b"[" * 100_000,
        b'{"game": "x", "game": "y"}',
        b"\xff\xfe",
        b'{"steps": ' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_no_config(content: bytes) -> None:
    with pytest.raises(ConfigError, match="is damaged"):
        decode_config(content)


def test_text_that_is_not_unicode_is_none_of_a_config() -> None:
    """But it may be part of the path of a story."""
    config = b'{"game": "%s", "agent": "%s", "settings": {}, "steps": 1}'
    assert decode_config(config % (b"/\\udcff.z5", b"y")).game == "/\udcff.z5"
    with pytest.raises(ConfigError, match=r"is damaged.*surrogates"):
        decode_config(config % (b"x", b"\\udcff"))


def test_a_setting_that_is_not_finite_comes_back() -> None:
    kept = RunConfig("x", "drrn", {"q": {"clip": float("inf")}})
    assert decode_config(encode_config(kept).encode()) == kept


def test_keys_of_earlier_versions_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = asdict(XtxSettings())
    assert replace_old_settings({**settings, "halving": False}, XtxSettings()) == settings
    with pytest.raises(
        ConfigError, match=r"'settings\.halving' of an earlier version, and can go on here only with false"
    ):
        replace_old_settings({**settings, "halving": True}, XtxSettings())
    imitation = settings["imitation"]
    assert replace_old_settings({"imitation": {**imitation, "length_buckets": True}}, XtxSettings()) == {
        "imitation": imitation
    }
    with pytest.raises(ConfigError, match=r"'settings\.imitation\.bfloat16' .* only with false"):
        replace_old_settings({"imitation": {**imitation, "bfloat16": True}}, XtxSettings())
    with pytest.raises(ConfigError, match=r"'settings\.imitation\.length_buckets' .* only with true"):
        replace_old_settings({"imitation": {**imitation, "length_buckets": False}}, XtxSettings())
    config = b'{"game": "x", "agent": "y", "settings": {}, "wide_grammar": %s}'
    without, with_it = decode_config(config % b"false"), decode_config(config % b"true")
    check_resumable(without)
    with pytest.raises(ConfigError, match=r"'wide_grammar' of an earlier version, and can go on here only with false"):
        check_resumable(with_it)
    assert "wide_grammar" not in encode_config(without)
    assert decode_config(encode_config(with_it).encode()) == with_it
    for lacking in ("retrace", "own_targets"):
        del settings[lacking]
    assert replace_old_settings(settings, XtxSettings()) == settings
    monkeypatch.setitem(OLD_KEYS, "settings.q.discount", OldKey("settings.q.gamma"))
    monkeypatch.setitem(OLD_KEYS, "length", OldKey("steps"))
    assert replace_old_settings({"q": {"discount": 0.5}}, XtxSettings()) == {"q": {"gamma": 0.5}}
    assert decode_config(b'{"game": "x", "agent": "y", "settings": {}, "length": 5}').steps == 5


# --- links and other things that are no files ----------------------------------------------------------------------

FILES = (
    "metrics.jsonl",
    "episodes.jsonl",
    "rooms.jsonl",
    "timing.jsonl",
    "changes.jsonl",
    "versions.json",
    "saved",
    "lock",
)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("dangling", [False, True])
def test_nothing_is_written_through_a_link(
    name: str, dangling: bool, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = tmp_path / "foreign"
    if not dangling:
        foreign.write_bytes(b"x" * 100_000)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(foreign)
    before = foreign.read_bytes() if not dangling else None
    for more in ([], ["--accept-changes"]):
        assert resume(run, *more) == 2
        assert f"{run / name} is a symbolic link" in complaint(capsys)
    assert (foreign.read_bytes() if foreign.exists() else None) == before
    assert (run / name).is_symlink()


def test_a_link_to_the_checkpoints_is_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "checkpoints").rename(tmp_path / "elsewhere")
    (run / "checkpoints").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / ".hidden").touch()
    before = contents(tmp_path / "elsewhere")
    assert resume(run) == 2
    assert "checkpoints is a symbolic link" in complaint(capsys)
    assert contents(tmp_path / "elsewhere") == before


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_link_to_a_folder_of_other_programs_is_refused(
    name: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(name)
    (tmp_path / "elsewhere").mkdir()
    (run / name).symlink_to(tmp_path / "elsewhere")
    assert resume(run, f"--{name}") == 2
    assert f"{name} is a symbolic link" in complaint(capsys)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_links_at_the_names_of_unfinished_files_are_not_followed(run: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_text("mine")
    for name in ("versions.json", "live.json", "changes.jsonl", "score.png"):
        (run / f".{name}.{os.getpid()}").symlink_to(foreign)
    (run / "live.json").unlink()
    for name in ("live.json", "score.png"):
        (run / name).symlink_to(foreign)
    change_config(run, lambda c: c.update(steps=400))
    assert resume(run, "--accept-changes") == 0
    assert foreign.read_text() == "mine"
    assert not (run / "live.json").is_symlink() and not (run / "changes.jsonl").is_symlink()


def test_a_backup_of_hard_links_does_not_change(run: Path, whole: Path, tmp_path: Path) -> None:
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 400, "hal')
    shutil.copytree(run, tmp_path / "backup", copy_function=os.link)
    before = contents(tmp_path / "backup")
    assert resume(run) == 0
    assert lines(run) == lines(whole)
    assert contents(tmp_path / "backup") == before


def test_a_run_that_is_reached_by_a_link_goes_on(run: Path, whole: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run)
    assert resume(tmp_path / "link") == 0
    assert lines(run) == lines(whole)


@pytest.mark.parametrize("name", ["metrics.jsonl", "timing.jsonl", "lock"])
@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_other_things_in_the_place_of_a_file(
    name: str, kind: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    (run / name).unlink()
    (run / name).mkdir() if kind == "folder" else os.mkfifo(run / name)
    assert resume(run) == 2
    assert f"{run / name} is a {'folder' if kind == 'folder' else 'named pipe'}" in complaint(capsys)


@pytest.mark.parametrize("name", ["config.json", "checkpoints/0000000320"])
def test_a_pipe_is_not_waited_for(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    assert resume(run) == (2 if name == "config.json" else 0)
    assert "it is a named pipe" in capsys.readouterr().err


def test_the_lock_is_for_its_owner_alone(run: Path) -> None:
    (run / "lock").unlink()
    with Run.open(run):
        assert (run / "lock").stat().st_mode & 0o777 == 0o600


def test_read_config_names_the_file(run: Path) -> None:
    change_config(run, lambda c: c.update(sead=1))
    with pytest.raises(UserError, match=rf"{re.escape(str(run / 'config.json'))} has an unknown key 'sead'"):
        read_config(run)


def test_a_config_that_is_replaced_by_hand_keeps_its_meaning(run: Path) -> None:
    content = (run / "config.json").read_text()
    (run / "config.json").write_text(content.replace(": 0.9", ": 9e-1"))
    assert (run / "config.json").read_text() != content
    with Run.open(run) as opened:
        assert opened.verify() == []
