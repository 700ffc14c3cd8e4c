"""`import xtx`: quick, lazy, typed, and enough for everything that the command line does."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import xtx
from xtx.core import Agent, Brief, Decision, Observation, UserError


def run_python(program: str, cwd: Path) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_quick_and_loads_nothing_heavy(tmp_path: Path) -> None:
    program = (
        "import sys, time; began = time.process_time(); import xtx; spent = time.process_time() - began;"
        "print(spent, *sorted({'torch', 'numpy', 'jericho', 'gymnasium', 'msgspec'} & set(sys.modules)))"
    )
    spent, *heavy = run_python(program, tmp_path).split()
    assert not heavy
    assert float(spent) < 0.15


def test_the_package_says_that_it_has_types() -> None:
    assert Path(xtx.__file__).with_name("py.typed").is_file()


@pytest.mark.parametrize("name", xtx.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    found = getattr(xtx, name)
    assert name in dir(xtx)
    if name != "__version__":
        assert (inspect.getdoc(found) or "").strip()


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_like_that"):
        _ = xtx.nothing_like_that  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["sweep", "report"])
def test_functions_that_share_the_name_of_a_module_work_before_and_after_its_import(name: str, tmp_path: Path) -> None:
    """Python binds `xtx.sweep` to the package of that name as soon as anything imports it."""
    program = (
        f"import xtx, inspect; before = callable(xtx.{name}); import xtx.{name}; print(before, callable(xtx.{name}))"
    )
    assert run_python(program, tmp_path).split() == ["True", "True"]
    module = importlib.import_module(f"xtx.{name}")
    assert callable(module)
    assert inspect.signature(module).parameters


# --- games ------------------------------------------------------------------------------------------------------


def test_a_game_is_played_saved_and_restored() -> None:
    with xtx.make(atlas=False) as game:
        assert game.name == "lowwater"
        assert game.max_score == 75
        first = game.reset()
        assert game.valid_actions() == first.actions
        assert game.walkthrough[0] in first.actions
        state, score = game.save(), game.score
        for action in game.walkthrough[:4]:
            step = game.step(action)
        assert step.observation == game.observation != first
        assert game.restore(state).text == first.text
        assert (game.score, game.valid_actions()) == (score, first.actions)


def test_a_game_without_valid_actions_finds_none() -> None:
    with xtx.make("lowwater", valid_actions=False, atlas=False) as game:
        assert game.reset().actions == ()
        assert game.step(game.walkthrough[0]).observation.text


def test_a_game_that_is_over_must_be_reset() -> None:
    with xtx.make("toy:corridor-5") as game:
        with pytest.raises(UserError, match="call reset"):
            game.step("east")
        game.reset()
        for action in game.walkthrough:
            step = game.step(action)
        assert (step.won, game.is_over, game.score) == (True, True, game.max_score)
        for after in (lambda: game.step("east"), game.save):
            with pytest.raises(UserError, match="call reset"):
                after()
        assert not game.reset().score


def test_threads_may_share_a_game() -> None:
    with xtx.make("lowwater", valid_actions=False, atlas=False) as game:
        first, state = game.reset(), game.save()
        seen: list[Observation] = []

        def play() -> None:
            for _ in range(20):
                seen.append(game.restore(state))
                game.save()

        threads = [threading.Thread(target=play) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [observation.text for observation in seen] == [first.text] * 80


def test_a_game_outlives_the_thread_that_made_it(tmp_path: Path) -> None:
    """The kernel ends the process of a game when the thread that started it ends."""
    program = (
        "import threading, time, xtx; made = []\n"
        "make = lambda: made.append(xtx.make('lowwater', valid_actions=False, atlas=False))\n"
        "thread = threading.Thread(target=make); thread.start(); thread.join(); time.sleep(0.2)\n"
        "with made[0] as game: print(len(game.reset().text) > 20)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (done.stdout.strip(), done.stderr) == ("True", "")


def test_a_fork_and_a_pickle_say_what_to_do_instead() -> None:
    with xtx.make("toy:corridor-5") as game:
        game.reset()
        with pytest.raises(TypeError, match=r"send what save\(\) gives"):
            pickle.dumps(game)
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            try:
                game.step("east")
            except UserError as error:
                os.write(writer, str(error).encode())
            game.close()
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            assert "make another one here" in pipe.read()
        assert game.step("east").observation.text


def test_a_fork_while_another_thread_is_within_a_call_does_not_hang() -> None:
    with xtx.make("toy:corridor-5") as game:
        state = (game.reset(), game.save())[1]
        # A fork has none of the parent's other threads, so the lock stays taken there as by this one, which has ended.
        within = threading.Thread(target=game._lock.acquire)
        within.start()
        within.join()
        calls = (game.reset, lambda: game.step("east"), game.save, lambda: game.restore(state))
        for call in calls:
            child = os.fork()
            if not child:
                signal.alarm(10)  # ends it
                try:
                    call()
                except UserError:
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("delay", [0.0002, 0.001, 0.003])
def test_a_game_goes_on_after_ctrl_c(delay: float) -> None:
    """An alarm raises what Ctrl-C does, somewhere in the middle of a game."""
    with xtx.make("lowwater", valid_actions=False, atlas=False) as game:

        def play() -> list[xtx.Step]:
            game.reset()
            return [game.step(action) for action in game.walkthrough]

        expected = play()
        before = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        try:
            for _ in range(2):
                signal.setitimer(signal.ITIMER_REAL, delay)
                with contextlib.suppress(KeyboardInterrupt):
                    for _ in range(1000):
                        play()
                assert play() == expected
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def test_many_games_leave_no_process_and_no_file_behind() -> None:
    def count() -> tuple[int, int]:
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(os.getpid())], capture_output=True, text=True)
        return len(listed.stdout.split()), len(os.listdir("/proc/self/fd"))

    before = count()
    for number in range(8):
        game = xtx.make("toy:corridor-5")
        game.reset()
        if number % 2:
            game.close()
        del game
    assert count() == before


def test_as_gym_is_the_same_story() -> None:
    with xtx.make("lowwater", valid_actions=False, atlas=False) as game:
        env = game.as_gym()
        narration, info = env.reset()
        assert narration == game.reset().text
        assert info["max_score"] == game.max_score
        env.close()


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: xtx.make("zork11"), "there is no game called 'zork11'"),
        (lambda: xtx.make("no/such/file.z5"), "does not exist"),
        (lambda: xtx.make(actions="everything"), "actions is 'templates' or 'whole'"),  # type: ignore[arg-type]
        (lambda: xtx.make_vector(num_envs=0), "num_envs takes a number from 1"),
        (lambda: xtx.make("toy:corridor-5").reset(-1), "seed takes a number from 0"),
        (lambda: xtx.load_run("nowhere"), "nowhere is not a run"),
        (lambda: xtx.train("toy:corridor-5", agent="nobody"), "there is no agent called 'nobody'"),
        (lambda: xtx.train("toy:corridor-5", agent="drrn", steps=0), "steps takes a number from 1"),
        (lambda: xtx.train("toy:corridor-5", agent="drrn", settings={"gama": 1}), "has no 'gama'"),
        (lambda: xtx.train("toy:corridor-5", agent="drrn", settings={"q": {"gamma": 7}}), "gamma takes a number"),
        (lambda: xtx.sweep(games=["toy:corridor-5"]), "there are no agents in the sweep"),
        (lambda: xtx.report("nowhere", walkthroughs=False), "there is no such folder"),
    ],
)
def test_what_does_not_fit_is_one_line(
    call: object, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert callable(call)
    with pytest.raises(UserError, match=complaint) as found:
        call()
    assert "\n" not in str(found.value)
    assert list(tmp_path.iterdir()) == []


def test_a_vector_gives_the_same_with_any_number_of_workers() -> None:
    seen = []
    for workers in (1, 2):
        with xtx.make_vector("toy:corridor-5", num_envs=3, workers=workers) as games:
            assert len(games) == 3
            first = games.reset()
            steps = games.step([observation.actions[number % 2] for number, observation in enumerate(first)])
            seen.append((first, steps))
    assert seen[0] == seen[1]


def test_no_story_runs_in_the_calling_process(tmp_path: Path) -> None:
    program = (
        "import xtx\n"
        "games = xtx.make_vector('lowwater', num_envs=1, workers=0, valid_actions=False, atlas=False); games.reset()\n"
        "game = xtx.make('lowwater', valid_actions=False, atlas=False); game.reset()\n"
        "print('libfrotz' in open('/proc/self/maps').read(), len(games.pids)); game.close(); games.close()\n"
    )
    assert run_python(program, tmp_path).split() == ["False", "1"]


def test_the_embedded_adventure_is_among_the_games_that_are_found() -> None:
    assert "lowwater" in xtx.list_games(found=True)
    assert "zork1" in xtx.list_games()


# --- training ---------------------------------------------------------------------------------------------------


class FirstAction(Agent):
    """Takes the first action."""

    def __init__(self, settings: object, brief: Brief) -> None:
        super().__init__(settings, brief)
        self.calls = 0

    def act(self, observations: list[Observation]) -> list[Decision]:  # type: ignore[override]
        return [Decision(observation.actions[0]) for observation in observations]


def test_a_run_is_trained_read_and_evaluated(tmp_path: Path) -> None:
    seen: list[xtx.TrainingUpdate] = []
    run = xtx.train(
        "toy:corridor-5", agent="drrn", steps=240, settings={"q": {"hidden": 16, "batch_size": 8}}, num_envs=4,
        out=tmp_path / "run", workers=1, log_every=5, on_update=seen.append,
    )  # fmt: skip
    assert run.is_finished
    assert (run.steps, len(seen), seen[-1].step, seen[-1].path) == (240, 60, 240, run.path)
    assert run.config.settings["q"]["hidden"] == 16  # type: ignore[index]
    assert run.metrics.column("step") == list(range(20, 241, 20))
    assert run.episodes.column("score") == [episode.score for episode in run.episodes] != []
    assert run.best().score == max(run.episodes.column("score"))
    decision = run.agent(device="cpu").act([xtx.Observation("text", "look", "inventory", ("east", "wait"), 0, 0)])
    assert decision[0].action in ("east", "wait")
    figures = run.evaluate(2, workers=1, device="cpu")
    assert (figures.episodes, figures.max_score) == (2, 10)


def test_training_can_be_left_and_gone_on_with(tmp_path: Path) -> None:
    options = {"agent": "random", "steps": 400, "num_envs": 4, "workers": 1, "log_every": 5}
    whole = xtx.train("toy:corridor-5", out=tmp_path / "whole", **options)  # type: ignore[arg-type]
    for update in xtx.train_steps("toy:corridor-5", out=tmp_path / "cut", **options):  # type: ignore[arg-type]
        if update.step >= 200:
            break
    cut = xtx.load_run(tmp_path / "cut")
    assert (cut.steps, cut.is_finished) == (200, False)
    stopped = xtx.resume(tmp_path / "cut", workers=1, on_update=lambda update: update.step < 300)
    assert stopped.steps == 300
    assert xtx.resume(tmp_path / "cut", workers=1).is_finished
    assert xtx.resume(tmp_path / "cut", workers=1).is_finished  # nothing is left to do
    for name in ("metrics.jsonl", "episodes.jsonl"):
        assert (cut.path / name).read_bytes() == (whole.path / name).read_bytes()


def test_the_command_line_and_the_library_make_the_same_run(tmp_path: Path) -> None:
    from xtx.cli.main import main

    run = xtx.train(
        "toy:corridor-5", agent="drrn", steps=80, num_envs=4, out=tmp_path / "api", workers=1, threads=1,
        settings={"q": {"hidden": 16}}, log_every=5,
    )  # fmt: skip
    words = (
        "train toy:corridor-5 --agent drrn --steps 80 --num-envs 4 --workers 1 --threads 1 --q.hidden 16 --log-every 5"
    )
    assert main([*words.split(), "--quiet", "--out", str(tmp_path / "cli")]) == 0
    assert run.config == xtx.load_run(tmp_path / "cli").config
    for name in ("metrics.jsonl", "episodes.jsonl"):
        assert (run.path / name).read_bytes() == (tmp_path / "cli" / name).read_bytes()


def test_a_class_can_be_trained_and_is_found_again_in_its_file(tmp_path: Path) -> None:
    run = xtx.train("toy:corridor-5", agent=FirstAction, steps=40, num_envs=2, out=tmp_path / "run", workers=1)
    assert run.config.agent == f"{Path(__file__).absolute()}:FirstAction"
    assert run.evaluate(1, workers=1).episodes == 1


def test_ctrl_c_saves_the_run_and_gives_it_back(tmp_path: Path) -> None:
    program = (
        "import os, signal, xtx\n"
        "stop = lambda update: os.kill(os.getpid(), signal.SIGINT) if update.step == 120 else None\n"
        f"run = xtx.train('toy:corridor-5', agent='random', steps=4000, num_envs=4, out={str(tmp_path / 'run')!r}, "
        "workers=1, on_update=stop)\n"
        "print(run.steps, run.is_finished)\n"
    )
    assert run_python(program, tmp_path).split() == ["120", "False"]


def test_a_progress_line_can_be_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    xtx.train("toy:corridor-5", agent="random", steps=40, num_envs=4, out=tmp_path / "run", workers=1, progress=True)
    assert "40 of 40 steps" in capsys.readouterr().err


def test_sweep_and_report(tmp_path: Path) -> None:
    chosen = {"games": ["toy:corridor-5"], "agents": ["random"], "seeds": [0, 1], "steps": 40}
    runs = xtx.sweep(**chosen, out=tmp_path / "sweep", jobs=1, workers=1, progress=False)  # type: ignore[arg-type]
    assert [run.is_finished for run in runs] == [True, True]
    assert [run.config.seed for run in runs] == [0, 1]
    page = xtx.report(runs, tmp_path / "report.md", walkthroughs=False)
    assert "random" in page.read_text()


def test_records_need_pandas_only_for_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = xtx.Records([{"step": 1, "q": 0.5}, {"step": 2}])
    assert rows.column("q") == [0.5]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install pandas"):
        rows.to_pandas()
