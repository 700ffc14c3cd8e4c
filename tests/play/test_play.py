from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from xtx.cli.main import main
from xtx.games.catalog import known_games
from xtx.games.story_game import GameSpec
from xtx.games.zmachine.typed_input import describe_fault, find_interpreter_word, fit_command, make_plain_command
from xtx.play.played_game import BROKEN, PlayedGame, split_paragraphs
from xtx.play.saved_games import find_folder, list_saved_games
from xtx.play.screen import make_status_line

LOWWATER = str(known_games.DATA / "lowwater.z5")
HANG = str(Path(__file__).parents[2] / "stories" / "hang" / "hang.z5")
XTX = [sys.executable, "-m", "xtx.cli", "play"]


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What one test finds out the others need not, in other files either."""
    return str(tmp_path_factory.getbasetemp() / "lowwater-atlas")


def play(*words: str, typed: str | bytes = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """A session with commands from a pipe."""
    done = subprocess.run(
        [*XTX, *words],
        input=typed.encode() if isinstance(typed, str) else typed,
        capture_output=True,
        env={**os.environ, **environment},
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_a_piped_session() -> None:
    done = play(typed="north\nopen drawer\n")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line.startswith(">")] == ["> north", "> open drawer"]
    bars = [line for line in lines if line.startswith("[") and "/75" in line]
    assert [bar.split()[0] for bar in bars] == ["[Sennet", "[Tide", "[Tide"]
    assert bars[-1].endswith("score 0/75   2 moves]")
    assert lines[-1] == "You leave with 0 of 75 points after 2 moves."


def test_paragraphs_stay_apart() -> None:
    out = play(typed="north\n").stdout
    assert "\nTide Office\nOne room" in out
    assert "south.\n\nA pear of old iron" in out


def test_without_slash_actions_nothing_is_searched(tmp_path: Path) -> None:
    play("--atlas", str(tmp_path / "atlas"), typed="north\n/quit\n")
    assert not (tmp_path / "atlas").exists()


def test_valid_actions_on_demand(atlas: str) -> None:
    done = play("--atlas", atlas, typed="/actions\nnorth\n/actions\n")
    assert "looking..." in done.stdout
    assert re.search(r"^.*\bnorth\b.*\bdown\b", done.stdout, re.MULTILINE)
    assert "take doorstop" in done.stdout


def test_undo() -> None:
    done = play(typed="/undo\nnorth\nopen drawer\ntake key\n/undo 2\nopen drawer\n/undo 9\n/undo x\n/undo 0\n")
    assert done.stdout.count("There is nothing to take back.") == 1
    assert "2 moves taken back." in done.stdout
    assert done.stdout.count("You open the drawer") == 2
    assert done.stdout.count("How many moves?") == 2
    assert done.stdout.endswith("You leave with 0 of 75 points after 0 moves.\n")


def test_the_end_of_the_game_can_be_taken_back() -> None:
    done = play(typed="down\neast\nlook\n/actions\n/undo 2\nnorth\n")
    assert "*** You have died ***" in done.stdout
    assert "+10 points" in done.stdout
    assert "The end. /undo takes back" in done.stdout
    assert "The game is over: /undo" in done.stdout
    assert "nothing would change" in done.stdout
    assert done.stdout.endswith("You leave with 0 of 75 points after 1 move.\n")


def test_save_and_load() -> None:
    done = play(typed="/load\nnorth\nopen drawer\n/save first try\n/restart\n/load first try\ntake key\n")
    assert done.returncode == 0
    assert "There are no saved games yet." in done.stdout
    assert "Begun anew." in done.stdout
    assert "Loaded first try.\n\nTide Office" in done.stdout
    assert "Taken." in done.stdout
    assert list_saved_games("lowwater") == ["first try"]
    again = play(typed="/load\n/load first try\n/undo\n")
    assert "\nfirst try\n" in again.stdout
    assert again.stdout.endswith("after 0 moves.\n")  # loading can be taken back


def test_the_same_name_is_written_over() -> None:
    play(typed="/save a\nnorth\n/save a\n")
    assert [path.name for path in find_folder("lowwater").iterdir()] == ["a.save"]
    assert play(typed="/load a\n").stdout.endswith("after 1 move.\n")


def test_a_damaged_save_gets_one_line() -> None:
    play(typed="north\n/save good\n")
    good = (find_folder("lowwater") / "good.save").read_bytes()
    middle = len(good) // 2
    damaged = {
        "cut": good[:99],
        "flipped": good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :],
        "empty": b"",
        "foreign": b"GIF89a" * 99,
    }
    for name, content in damaged.items():
        (find_folder("lowwater") / f"{name}.save").write_bytes(content)
    done = play(typed="".join(f"/load {name}\n" for name in damaged) + "north\n")
    assert done.returncode == 0
    assert " ".join(done.stdout.split()).count("is damaged or no saved game; nothing was loaded") == 4
    assert done.stdout.endswith("after 1 move.\n")


def test_a_save_of_another_story_gets_one_line() -> None:
    play(typed="/save a\n")
    there = find_folder("hang") / "a.save"
    there.parent.mkdir()
    shutil.copy(find_folder("lowwater") / "a.save", there)
    assert "another story or release" in " ".join(play(HANG, typed="/load a\n").stdout.split())


def test_names_of_saves_stay_in_their_folder() -> None:
    done = play(typed="/save ../../x\n/save\n/save .x\n/load /etc/passwd\n")
    assert done.stdout.count("A name for a saved game has letters") == 3
    assert "Under which name?" in done.stdout
    assert not find_folder("lowwater").exists()


def test_a_save_that_cannot_be_written_gets_one_line() -> None:
    find_folder("x").parent.mkdir(parents=True)
    find_folder("lowwater").write_text("in the way")
    done = play(typed="/save a\nnorth\n")
    assert done.returncode == 0
    assert "cannot be written" in " ".join(done.stdout.split())


def test_transcript(tmp_path: Path) -> None:
    first, second = tmp_path / "first.txt", tmp_path / "second.txt"
    typed = f"north\n/undo\n/transcript {second}\nwest\n/transcript\nlook\n/transcript\n/transcript {tmp_path}\n"
    done = play("--transcript", str(first), typed=typed)
    assert done.returncode == 0
    text = first.read_text()
    assert text.lstrip().startswith("Nineteen years ago")
    assert "\n> north\n\nTide Office\n" in text
    assert "[One move taken back.]" in text
    assert "west" not in text.split("> north")[1].split("taken back")[1]
    assert "> west" in second.read_text()
    assert "> look" not in second.read_text()
    assert "To which file?" in done.stdout
    assert "no transcript can be written" in " ".join(done.stdout.split())
    play("--transcript", str(first), typed="west\n")
    assert first.read_text().startswith(text)  # a transcript goes on where the last one ended


def test_a_full_disk_ends_the_transcript_and_not_the_game() -> None:
    done = play("--transcript", "/dev/full", typed="north\n")
    assert done.returncode == 0
    assert "The transcript ends here" in done.stdout
    assert "Tide Office" in done.stdout


def test_what_the_game_cannot_read_gets_a_friendly_line() -> None:
    typed = b"x" * 199 + b"\n\xff\xfe\n" + "жук\n".encode() + b"\x1b[A\n\\help\n" + "exámine “gull”\n".encode()
    done = play(typed=typed)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "the game reads 198 letters at most, and these are 199" in " ".join(done.stdout.split())
    assert done.stdout.count("The game reads plain letters only") == 4
    assert '> examine "gull"' in done.stdout


def test_the_interpreter_is_not_spoken_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = play(typed="save\nscript\nnorth. save\nquit\nundo\n")
    assert done.stdout.count("/save NAME saves the game here.") == 2
    assert "/transcript FILE writes" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_help_and_unknown_commands() -> None:
    done = play(typed="/help\n/undp\n/xyzzy\n/\n")
    for word in ("/actions", "/hint", "/undo [N]", "/save NAME", "/load [NAME]", "/transcript [FILE]", "/quit"):
        assert word in done.stdout
    assert "did you mean /undo?" in done.stdout
    assert done.stdout.count("/help lists the commands") == 3  # the greeting is one of them


def test_quit_ends_and_leaves_the_rest_unread() -> None:
    assert "> north" not in play(typed="/quit\nnorth\n").stdout


@pytest.mark.parametrize("width", ["20", "33"])
def test_narrow_windows(width: str) -> None:
    done = play(typed="north\n/help\n", COLUMNS=width)
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= int(width)
    assert "0/75" in done.stdout


@pytest.mark.parametrize("room", ["", "Hall", "A Maze of Twisty Little Passages, All Alike, and Longer Than This"])
def test_the_status_line_is_as_wide_as_the_window(room: str) -> None:
    for width in range(1, 120):
        assert len(make_status_line(room, -5, 350, 1234, width)) == width
    assert make_status_line(room, 5, 75, 1, 120).endswith(" score 5/75   1 move ")
    assert make_status_line("Hall", 5, 75, 1, 12) == " Hall  5/75 "


def test_a_story_that_hangs_or_breaks() -> None:
    done = play(HANG, "--no-atlas", typed="hang\nburst\ntake coin\ncrash\n/save a\n/undo\ndown\n")
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.count("The game does not answer to that.") == 2
    assert "nothing to save" in done.stdout
    assert BROKEN in done.stdout
    assert "+1 point\n" in done.stdout
    assert "A bare cellar" in done.stdout


# --- agents ---------------------------------------------------------------------------------------------------------


def test_the_walkthrough_wins_without_searching(tmp_path: Path) -> None:
    done = play("--agent", "walkthrough", "--atlas", str(tmp_path / "atlas"), "--transcript", str(tmp_path / "t"))
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "won: 75 of 75 points after 45 steps"
    assert "+7 points" in done.stdout
    assert not (tmp_path / "atlas").exists()
    assert (tmp_path / "t").read_text().endswith("[won: 75 of 75 points after 45 steps]\n")


def test_step_limit_and_episodes() -> None:
    done = play("--agent", "walkthrough", "--steps", "5", "--episodes", "2")
    assert "Episode 2 of 2" in done.stdout
    assert done.stdout.count("> north") == 2
    rows = [line.strip().split(maxsplit=3) for line in done.stdout.splitlines() if "step limit" in line]
    assert rows == [["1", "4/75", "5", "stopped at the step limit"], ["2", "4/75", "5", "stopped at the step limit"]]
    assert done.stdout.splitlines()[-1] == "mean score 4.0 of 75 over 2 episodes"


def test_random_play_can_be_repeated(atlas: str) -> None:
    words = ("--agent", "random", "--steps", "3", "--atlas", atlas)
    first = play(*words, "--seed", "1")
    assert first.returncode == 0
    assert first.stdout.count("\n> ") <= 3
    assert " of 75 points after " in first.stdout.splitlines()[-1]
    assert play(*words, "--seed", "1").stdout == first.stdout


def test_delay() -> None:
    before = time.monotonic()
    play("--agent", "walkthrough", "--steps", "2", "--delay", "0.5")
    assert time.monotonic() - before > 1


def test_watching_can_be_interrupted() -> None:
    with subprocess.Popen(
        [*XTX, "--agent", "walkthrough", "--delay", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        while "0/75" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted: 0 of 75 points after" in out
    assert err == ""


# --- trained agents -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a small run; its seed is also the emulator's."""
    folder = str(tmp_path_factory.mktemp("runs") / "xtx")
    words = ["train", "toy:corridor-5", "--agent", "xtx", "--steps", "400", "--seed", "3", "--out", folder, "--quiet"]
    small = "--q.hidden 16 --text.vocabulary 128 --imitation.width 16 --imitation.layers 1 --imitation.heads 2"
    quick = "--first-training 20 --imitation.passes 2 --workers 1 --threads 1"
    assert main([*words, *small.split(), *quick.split()]) == 0
    return folder


def test_watching_a_trained_agent(trained: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    words = ["play", "--agent", trained, "--episodes", "2", "--transcript", str(tmp_path / "t")]
    assert main([*words]) == 0
    out = capsys.readouterr().out
    assert "Episode 2 of 2" in out
    assert "mean score" in out
    commands = re.findall(r"^> (.*?)  \((exploit|explore)\)$", out, re.MULTILINE)
    thoughts = re.findall(r"^  (exploit|explore): (\w.*%)$", out, re.MULTILINE)
    assert len(commands) == len(thoughts) > 2
    for (action, phase), (thought_phase, listed) in zip(commands, thoughts, strict=True):
        assert phase == thought_phase
        assert action in [re.sub(r" (under )?\d+ %", "", part) for part in listed.split(", ")]
        assert 97 <= sum(map(int, re.findall(r"(\d+) %", listed))) <= 103
    assert f"> {commands[0][0]}\n" in (tmp_path / "t").read_text()
    assert main([*words[:3], "--steps", "1", "--checkpoint", "newest"]) == 0
    assert "stopped at the step limit: " in capsys.readouterr().out


def test_a_trained_agent_in_another_game(trained: str, atlas: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["play", LOWWATER, "--agent", trained, "--steps", "2", "--atlas", atlas]) == 0
    out = capsys.readouterr().out
    assert "Sennet Quay" in out
    assert "of 75 points after 2 steps" in out


def hints(out: str) -> list[dict[str, int]]:
    """What was said to each /hint."""
    blocks = re.findall(r"The agent would now \(phase: \w+\):\n((?: *\d+ %  .*\n)+)", out)
    return [{action.strip(): int(n) for n, action in re.findall(r"(\d+) %  (.*)\n", block)} for block in blocks]


def test_hints(trained: str) -> None:
    done = play("--hint", trained, typed="/hint\neast\n/hint\n/undo\n/hint\ntake lamp\n/hint\neast\n/restart\n/hint\n")
    assert done.returncode == 0
    assert done.stderr == ""
    first, second, undone, third, again = hints(done.stdout)
    assert first.keys() == {"east", "take lamp"}
    assert second.keys() == {"east", "west"}
    assert undone == first
    assert third.keys() == {"east", "drop lamp"}
    assert again == first
    assert sum(first.values()) == 100


def test_hints_in_a_story(trained: str, atlas: str) -> None:
    done = play(LOWWATER, "--hint", trained, "--atlas", atlas, typed="north\n/hint\ndown\nsouth\ndown\neast\n/hint\n")
    [shown] = hints(done.stdout)
    assert len(shown) == 5
    assert "take doorstop" in shown
    assert list(shown.values()) == sorted(shown.values(), reverse=True)
    assert "The game is over: there is nothing to do." in done.stdout


def test_hints_know_the_persons_own_commands(trained: str) -> None:
    from xtx.core import Agent, Brief, Decision, Insight, NoSettings, Observation
    from xtx.games.vector.isolated_game import IsolatedGame
    from xtx.play.interactive import InteractivePlay, Keyboard
    from xtx.play.screen import Screen

    class Adviser(Agent):
        asked: ClassVar[list[tuple[int, list[str]]]] = []

        def act(self, observations: Sequence[Observation]) -> list[Decision]:
            return [Decision("sing") for _ in observations]

        def insight(self, observation: Observation, previous: Sequence[str]) -> Insight:
            self.asked.append((observation.step, list(previous)))
            return Insight({})

    played = PlayedGame(GameSpec("toy:corridor-5"), IsolatedGame)
    with contextlib.closing(played):
        session = InteractivePlay(played, screen := Screen(), Keyboard(), Adviser(NoSettings(), Brief(1, 0)))
        played.begin()
        with screen.console.capture() as shown:
            for line in ("take lamp", "east", "/hint", "/undo", "/hint", "east", "east", "/hint", "/undo 3", "/hint"):
                session.carry_out(line)
    assert shown.get().count("The agent would now: sing") == 4
    assert Adviser.asked == [
        (2, ["take lamp", "east"]), (1, ["take lamp"]), (3, ["take lamp", "east", "east"]), (0, [])
    ]  # fmt: skip


def test_hints_need_somebody_to_ask() -> None:
    done = play(typed="/hint\n")
    assert "begin with --hint RUN" in " ".join(done.stdout.split())


def test_a_toy_world_by_hand() -> None:
    done = play("toy:corridor-5", typed="take lamp\n/save a\neast\n/actions\n/load a\ndrop lamp\n")
    assert done.returncode == 0
    assert "Loaded a.\n\nRoom 1 of 5.\nYou carry a lamp." in done.stdout
    assert "[Room 2 of 5" in done.stdout
    assert done.stdout.endswith("You leave with 0 of 10 points after 2 moves.\n")


# --- mistakes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["lowwatr"], "did you mean lowwater?"),
        (["./absent.z5"], "does not exist"),
        (["zork1"], "zork1 is not here"),
        (["--agnt", "random"], "--agnt"),
        (["--agent", "clever"], "--agent takes random, walkthrough or the folder of a run"),
        (["--agent", "."], "is not a run"),
        (["--hint", "absent"], "is not a run"),
        (["--hint", "absent", "--agent", "random"], "--hint is for people"),
        (["toy:corridor-2"], "there is no toy world"),
        (["--delay", "1"], "--delay is for agents"),
        (["--agent", "random", "--delay", "-1"], "--delay takes seconds"),
        (["--agent", "random", "--delay", "nan"], "--delay takes seconds"),
        (["--agent", "random", "--steps", "0"], "--steps takes a number from 1"),
        (["--agent", "random", "--episodes", "-3"], "--episodes takes a number from 1"),
        (["--seed", "-1"], "--seed takes a number from 0"),
        (["--seed", "9999999999"], "--seed takes a number from 0"),
        (["--atlas", "x", "--no-atlas"], "exclude each other"),
        (["--transcript", "/"], "no transcript can be written to / (Is a directory)"),
        (["--transcript", "/nowhere/t.txt"], "(No such file or directory)"),
        ([__file__], "is not a Z-machine story"),
    ],
)
def test_mistakes_get_one_line(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("xtx: ")
    assert err.count("\n") == 1
    assert complaint in err


def test_a_closed_pipe_is_quiet() -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as closed:
        done = subprocess.run([*XTX, "--agent", "walkthrough"], stdout=closed, stderr=subprocess.PIPE, check=False)
    assert done.returncode != 0
    assert done.stderr == b""


# --- parts ----------------------------------------------------------------------------------------------------------


def test_plain_commands() -> None:
    assert make_plain_command(" exámine\t“the gull\u2019s” —  nest… ") == 'examine "the gull\'s" - nest.'
    assert describe_fault("look") == ""
    assert fit_command("a\\b\0c" + "d" * 300) == "a b c" + "d" * 193


@pytest.mark.parametrize(
    ("command", "word"),
    [
        ("save", "save"), ("SAVE", "save"), ("north. save", "save"), ("n then script on", "script"), ("q", "q"),
        ("save boy", ""), ("say quit", ""), ("", ""), ("restore bell", ""),
    ],
)  # fmt: skip
def test_words_to_the_program(command: str, word: str) -> None:
    assert find_interpreter_word(command) == word


def test_narrations_cannot_steer_the_terminal() -> None:
    assert split_paragraphs("\n\n\n\x1b[2JHello\x07\n\n\n\nthere\r\n>") == "[2JHello\n\nthere"
    assert split_paragraphs("Are you sure?" + " " * 60 + "HallScore: 0Moves: 3") == "Are you sure?"
    assert split_paragraphs("    *** You have won ***\n") == "    *** You have won ***"


def test_no_story_runs_in_the_process_of_the_player() -> None:
    code = (
        "import sys\n"
        "from xtx.games.story_game import GameSpec\n"
        "from xtx.play.played_game import PlayedGame\n"
        "played = PlayedGame(GameSpec(sys.argv[1], search=False))\n"
        "played.begin(), played.move('north'), played.load(played.save()), played.restart()\n"
        "played.close()\n"
        "print(any('frotz' in line for line in open('/proc/self/maps')))\n"
    )
    played = subprocess.run([sys.executable, "-c", code, LOWWATER], capture_output=True, text=True, timeout=60)
    assert (played.stdout, played.stderr) == ("False\n", "")


@pytest.mark.roms
@pytest.mark.parametrize(
    ("name", "rooms"),
    [
        ("zork1", ["West of House", "North of House", "Forest Path", "Up a Tree"]),
        ("905", ["Bedroom"]),
        ("detective", ["Chief's office", "Closet"]),
    ],
)
def test_rooms_of_real_games(name: str, rooms: list[str]) -> None:
    played = PlayedGame(GameSpec(str(known_games.find_story(name).path), search=False))
    seen = [played.begin().room]
    seen += [played.move(command)[0].room for command in played.walkthrough[:8]]
    played.close()
    assert list(dict.fromkeys(seen))[: len(rooms)] == rooms
