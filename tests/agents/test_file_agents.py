"""`--agent FILE.py:CLASS`: found again when a run goes on, refused in one line otherwise."""

from __future__ import annotations

import importlib
import json
import shlex
import shutil
from pathlib import Path

import pytest

import xtx
from xtx.agents.from_file import accept_agent, make_agent_label, register_agent
from xtx.agents.registry import find_agent, make_preset
from xtx.cli.main import main
from xtx.core import Agent, UserError

PROGRAM = """
from dataclasses import dataclass
import beside
import xtx

class FirstAgent(xtx.Agent):
    @dataclass(frozen=True)
    class Settings:
        shift: int = 0

    def act(self, observations):
        return [xtx.Decision(beside.choose(o.actions, self.settings.shift)) for o in observations]

    def insight(self, observation, previous):
        return xtx.Insight({a: float(a == observation.actions[0]) for a in observation.actions})

not_an_agent = 3
"""
BESIDE = "def choose(actions, shift):\n    return actions[shift % len(actions)]\n"
WORDS = ["--steps", "40", "--workers", "1", "--threads", "1", "--quiet"]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An agent's file, with a module beside it."""
    monkeypatch.delenv("XTX_AGENT_FILES", raising=False)
    monkeypatch.delenv("XTX_AGENT_MOVES", raising=False)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "my_agent.py").write_text(PROGRAM)
    return tmp_path / "my_agent.py"


def test_it_is_trained_with_its_settings_evaluated_and_resumed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "toy:corridor-5", "--agent", "my_agent.py:FirstAgent", "--shift", "1", "--num-envs", "2"]
    assert main([*words, *WORDS, "--out", "run"]) == 0
    run = xtx.load_run("run")
    assert run.config.agent == f"{file}:FirstAgent"
    assert run.config.settings == {"shift": 1}
    monkeypatch.chdir("/")  # the name has a whole path
    assert main(["resume", str(tmp_path / "run"), "--workers", "1", "--quiet"]) == 0
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "1", "--workers", "1", "--no-save"]) == 0


def test_what_is_missing_is_said_in_one_line(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = xtx.train("toy:corridor-5", agent=f"{file}:FirstAgent", steps=10, num_envs=2, out=tmp_path / "run", workers=1)
    file.rename(tmp_path / "elsewhere.py")
    assert main(["resume", str(run.path)]) == 2
    assert capsys.readouterr().err.strip() == (
        f"xtx: the agent FirstAgent should be in {file}, but there is no such file; put it back there, "
        "or say where it is now: xtx resume RUN --agent FILE.py:FirstAgent"
    )


def test_a_file_that_was_moved_is_found_again_once_its_place_was_named(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = xtx.train("toy:corridor-5", agent=f"{file}:FirstAgent", steps=10, num_envs=2, out=tmp_path / "run", workers=1)
    moved = file.rename(tmp_path / "elsewhere.py")
    assert main(["resume", str(run.path), "--agent", f"{moved}:Another"]) == 2
    assert "goes on with its own agent" in capsys.readouterr().err
    assert main(["resume", str(run.path), "--agent", f"{moved}:FirstAgent", "--workers", "1", "--quiet"]) == 0
    monkeypatch.delenv("XTX_AGENT_FILES")  # another process, on another day
    monkeypatch.delenv("XTX_AGENT_MOVES")
    assert run.evaluate(1, workers=1).episodes == 1
    moved.unlink()
    assert main(["resume", str(run.path)]) == 2
    assert f"should be in {moved}" in capsys.readouterr().err


def test_a_run_from_elsewhere_runs_no_file_that_was_not_named_here(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = xtx.train("toy:corridor-5", agent=f"{file}:FirstAgent", steps=10, num_envs=2, out=tmp_path / "run", workers=1)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "another-user"))
    monkeypatch.delenv("XTX_AGENT_FILES")
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n{PROGRAM}")
    for command in (["evaluate", str(run.path)], ["resume", str(run.path)], ["play", "--agent", str(run.path)]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert "was never named on this machine" in said
        assert said.count("\n") == 1
    assert not (tmp_path / "ran").exists()
    assert main(["resume", str(run.path), "--agent", f"{file}:FirstAgent", "--workers", "1", "--quiet"]) == 0
    assert (tmp_path / "ran").exists()
    assert main(["resume", str(run.path), "--agent", "drrn"]) == 2
    assert "goes on with its own agent" in capsys.readouterr().err


def test_a_class_of_a_script_that_was_moved_is_the_one_that_was_given(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script that resumes its run is not run once more to find the class."""
    ran, agent = tmp_path / "ran", f"{file}:FirstAgent"
    file.write_text(f"open({str(ran)!r}, 'w').close()\n{PROGRAM}")
    run = xtx.train("toy:corridor-5", agent=agent, steps=20, num_envs=2, out=tmp_path / "run", workers=1)
    moved = file.rename(tmp_path / "moved_agent.py")
    monkeypatch.syspath_prepend(tmp_path)
    given = importlib.import_module("moved_agent").FirstAgent
    ran.unlink()
    assert xtx.resume(run.path, agent=given, workers=1).is_finished
    assert find_agent(agent) is given and not ran.exists()
    assert register_agent(given) == f"{moved}:FirstAgent"


def forge(run: xtx.SavedRun, agent: str) -> None:
    """Put another agent into the config of a run."""
    config = json.loads((run.path / "config.json").read_text())
    (run.path / "config.json").write_text(json.dumps(config | {"agent": agent}))


@pytest.mark.parametrize("separator", ["\n", "\r", "\t", "\x85", "\u2028", ":"])
def test_a_path_in_a_run_names_no_further_file(
    file: Path, tmp_path: Path, separator: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = xtx.train("toy:corridor-5", agent=f"{file}:FirstAgent", steps=10, num_envs=2, out=tmp_path / "run", workers=1)
    other = tmp_path / "evil.py"
    other.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n{PROGRAM}")
    forge(run, f"/gone{separator}{other}{separator}/zz.py:FirstAgent")
    words = ["resume", str(run.path), "--accept-changes", "--workers", "1", "--quiet"]
    assert main([*words, "--agent", f"{file}:FirstAgent"]) == 2
    assert "goes on with its own agent" in capsys.readouterr().err
    with pytest.raises(UserError, match="never named"):
        find_agent(f"{other}:FirstAgent")
    assert not (tmp_path / "ran").exists()
    with pytest.raises(UserError, match="has no control characters"):
        accept_agent(f"{tmp_path}/a{separator}b.py:FirstAgent")


def test_a_file_that_appears_where_another_was_is_not_run(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The place was never named here: it stands in the run, and only the file's new place was named."""
    run = xtx.train("toy:corridor-5", agent=f"{file}:FirstAgent", steps=10, num_envs=2, out=tmp_path / "run", workers=1)
    for name in ("XTX_AGENT_FILES", "XTX_AGENT_MOVES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "another-user"))
    moved = file.rename(tmp_path / "elsewhere.py")
    words = ["resume", str(run.path), "--workers", "1", "--quiet"]
    assert main([*words, "--agent", f"{moved}:FirstAgent"]) == 0
    assert main(words) == 0, "it is found where it is now"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n{PROGRAM}")
    for _ in range(2):
        assert main(words) == 2
        assert "was never named on this machine" in capsys.readouterr().err
        monkeypatch.delenv("XTX_AGENT_FILES", raising=False)  # in another process too
        monkeypatch.delenv("XTX_AGENT_MOVES", raising=False)
    assert not (tmp_path / "ran").exists()


def test_a_move_is_noted_only_for_a_run_that_goes_on(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = xtx.train("toy:corridor-5", agent=f"{file}:FirstAgent", steps=10, num_envs=2, out=tmp_path / "run", workers=1)
    forge(run, "/gone/zz.py:FirstAgent")
    assert main(["resume", str(run.path), "--agent", f"{file}:FirstAgent"]) == 2
    assert "config.json" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"should be in /gone/zz\.py"):
        find_agent("/gone/zz.py:FirstAgent")


@pytest.mark.parametrize("command", ["evaluate", "export"])
def test_what_is_said_of_a_file_that_was_not_named_can_be_done(
    command: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = xtx.train("toy:corridor-5", agent=f"{file}:FirstAgent", steps=10, num_envs=2, out=tmp_path / "run", workers=1)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "another-user"))
    monkeypatch.delenv("XTX_AGENT_FILES")
    own = {"evaluate": ["--episodes", "1", "--no-save"], "export": ["--episodes", "0", "--play", "1"]}[command]
    words = [command, str(run.path), *own, "--workers", "1", *(["--out", str(tmp_path / "e")] * (command == "export"))]
    assert main(words) == 2
    program, *advised = shlex.split(capsys.readouterr().err.rpartition(": ")[2])
    assert program.endswith("xtx") and main(advised) == 0
    assert "shift" in capsys.readouterr().out, "its settings"
    assert main(words) == 0


def test_it_can_be_compared_and_swept(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"{file}:FirstAgent"
    words = ["compare", "toy:corridor-5", "--agents", name, "--out", str(tmp_path / "compare"), "--steps", "40"]
    assert main([*words, "--workers", "1", "--jobs", "1"]) == 0
    assert "FirstAgent" in capsys.readouterr().out
    runs = xtx.sweep(
        games=["toy:corridor-5"], agents=[name], steps=40, out=tmp_path / "sweep", jobs=1, workers=1, progress=False,
        settings={name: {"shift": 1}},
    )  # fmt: skip
    assert [run.path.relative_to(tmp_path / "sweep").parts for run in runs] == [
        ("toy-corridor-5", "FirstAgent", "seed-0")
    ]
    assert runs[0].config.settings == {"shift": 1}


@pytest.mark.parametrize(
    ("content", "name", "complaint"),
    [
        ("", "Agent1", "has no class Agent1; it has no agent at all"),
        (PROGRAM, "Agent1", "has no class Agent1; it has: FirstAgent"),
        (PROGRAM, "not_an_agent", "is not a class made from xtx.core.Agent"),
        ("import nothing_like_that", "A", "fails at line 1: ModuleNotFoundError"),
        ("x = 1\n\n1 / 0", "A", "fails at line 3: ZeroDivisionError"),
        ("def f(:", "A", "is not Python: line 1"),
        (None, "A", "but there is no such file"),
    ],
)
def test_a_bad_file_is_one_line(file: Path, content: str | None, name: str, complaint: str) -> None:
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    with pytest.raises(UserError, match=complaint) as found:
        find_agent(accept_agent(f"{file}:{name}"))
    assert "\n" not in str(found.value)


def test_a_file_that_was_changed_is_loaded_again(file: Path) -> None:
    name = accept_agent(f"{file}:FirstAgent")
    assert make_preset(name, "").shift == 0
    shutil.copystat(__file__, file)  # another time of change
    file.write_text(PROGRAM.replace("shift: int = 0", "shift: int = 5"))
    assert make_preset(name, "").shift == 5


def test_a_class_without_a_file_is_known_to_its_program_alone() -> None:
    namespace: dict[str, type[Agent]] = {}
    exec("import xtx\nclass Cell(xtx.Agent):\n    def act(self, observations): return []", namespace)
    name = register_agent(namespace["Cell"])
    assert (name, make_agent_label(name), find_agent(name)) == ("class:Cell", "Cell", namespace["Cell"])
    with pytest.raises(UserError, match="lies in no file"):
        find_agent("class:Other")
