"""Stories in which nothing can be done: agents are offered the fallback actions, and nothing fails."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import zcode
from zcode import PARSE, TEXT, Code

from xtx.cli.main import main
from xtx.core import FALLBACK_ACTIONS
from xtx.games.catalog.profile import End, Profile, Word, write_profile
from xtx.games.story_game import GameSpec, StoryGame


def write_story(folder: Path, grammar: tuple[str, ...], walkthrough: tuple[str, ...] = ()) -> Path:
    """A story that reads a line, says `x`, and reads the next."""
    code = Code(zcode.CODE)
    code.op("nop")  # Jericho executes one instruction before it looks what the next is
    code.op("storeb", TEXT, 1, 0)
    code.op("read", TEXT, PARSE, store=16)
    code.op("print_char", ord("x"))
    code.op("new_line")
    code.op("jump", (zcode.CODE - code.here - 1) & 0xFFFF)
    content = zcode.assemble(bytes(code.bytes))
    path = folder / "still.z5"
    path.write_bytes(content)
    profile = Profile(
        name="still", title="Still", file=path.name, md5=hashlib.md5(content, usedforsecurity=False).hexdigest(),
        max_score=1, player=2, objects=8, score=Word(zcode.GLOBALS + 20), moves=Word(zcode.GLOBALS + 22),
        end=End(zcode.GLOBALS + 24), word_length=9, grammar=grammar, walkthrough=walkthrough,
    )  # fmt: skip
    write_profile(profile, path.with_suffix(".json"))
    return path


@pytest.mark.parametrize("engine", ["zset", "jericho"])
@pytest.mark.parametrize("grammar", [(), ("take OBJ", "wait", "put OBJ in OBJ"), ("zzz",)], ids=["none", "some", "odd"])
def test_a_story_without_a_valid_action(grammar: tuple[str, ...], engine: str, tmp_path: Path) -> None:
    path = write_story(tmp_path, grammar)
    for options in ({}, {"extra_actions": True}, {"actions": "whole"}):
        game = StoryGame(GameSpec(str(path), engine=engine, **options))  # type: ignore[arg-type]
        first = game.reset()
        assert first.actions == FALLBACK_ACTIONS
        after = game.step(first.actions[0])
        assert after.observation.actions == FALLBACK_ACTIONS and not after.terminated and after.reward == 0
        game.close()


@pytest.mark.parametrize("agent", ["random", "xtx-demo"])
def test_agents_play_it(agent: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_story(tmp_path, ("take OBJ", "wait"))
    words = ["--steps", "240", "--num-envs", "2", "--workers", "1", "--threads", "1", "--no-atlas"]
    assert main(["train", str(path), "--agent", agent, *words, "--out", str(tmp_path / "r")]) == 0
    assert "Traceback" not in capsys.readouterr().err
    assert main(["best", str(tmp_path / "r")]) == 0
    assert main(["games", "check", str(path)]) in (0, 2)
    assert main(["games", "info", str(path)]) == 0
    error = capsys.readouterr().err
    assert "Traceback" not in error and error.count("\n") <= 1


def test_its_walkthrough_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_story(tmp_path, ("take OBJ", "wait"), walkthrough=("take apple", "wait"))
    assert main(["games", "check", str(path)]) in (0, 2)
    assert capsys.readouterr().err.count("\n") <= 1
