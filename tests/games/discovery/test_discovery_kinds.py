"""Stories that begin with questions, or with nothing but trouble; that speak another language; that print scores in
other ways."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from zcode import CODE, Code, assemble

from xtx.cli.main import main
from xtx.core import UserError
from xtx.games.catalog.known_games import find_default_game, find_story
from xtx.games.catalog.profile import Profile
from xtx.games.catalog.profile_format import encode_profile, make_profile_fields, make_profile_key
from xtx.games.catalog.story_file import read_story
from xtx.games.discovery.discover import discover
from xtx.games.discovery.isolated_discovery import discover_in_child
from xtx.games.discovery.walk import find_offered_answers
from xtx.games.emulator.frotz import Emulator
from xtx.games.story_game import GameSpec, StoryGame
from xtx.games.vector.game_vector import GameVector

ADVENTURE = """
Array line buffer 60; Array words -> 130; Global points; Global key;
[ Main; Begin(); ];
[ Begin; Opening();
  for (::) {
    print "^>"; line->0 = 50; line->1 = 0; words->0 = 10; read line words;
    switch (words-->1) {
      'look': print "A cave.^";
      'inventory': print "You have nothing.^";
      'score': print "Your score is ", points, ".^";
      'wave': points = points + 5; print "Well waved.^";
      default: print "I don't know that.^";
    } } ];
"""
OPENINGS = {
    "a menu of keys": (
        'do { print "^1) Story so far^2) Begin^"; @read_char 1 -> key; if (key == \'1\') print "Once.^"; }'
        " until (key == '2');",
        ("2",),
    ),
    "two menus": (
        "do { print \"^[I]ntroduction or [B]egin?\"; @read_char 1 -> key; } until (key == 'b');"
        "do { print \"^Level? (1), (2) or (3)\"; @read_char 1 -> key; } until (key == '3');",
        ("I", "b", "1", "3"),  # Frotz shows the last word only when a key was typed
    ),
    "a question with answers": (
        'do { print "^Are you a wizard or a thief? "; line->0 = 50; line->1 = 0; read line 0; }'
        " until (line->2 == 't');",
        ("thief",),
    ),
    "yes or no, asked again behind a prompt": (
        'print "^Instructions? (y/n) >"; line->0 = 50; line->1 = 0; words->0 = 5; read line words;'
        " while (words-->1 ~= 'yes' or 'no') { print \"Please answer yes or no.>\"; line->1 = 0; read line words; }",
        ("no",),
    ),
    "nothing": ("", ()),
    "a question without an answer": ('for (::) { print "^Why? "; line->0 = 50; line->1 = 0; read line 0; }', ()),
}
SPANISH = """
Array line buffer 60; Array words -> 130; Global points; Global turn; Global place = 1; Global lamp;
[ Main w; print "LA CUEVA^"; Describe();
  for (::) {
    turn++; print "^>"; line->0 = 50; line->1 = 0; words->0 = 10; read line words; w = words-->1;
    switch (w) {
      'mirar': Describe();
      'norte': if (place == 1) { place = 2; Describe(); } else print "No puedes ir por ahi.^";
      'sur': if (place == 2) { place = 1; Describe(); } else print "No puedes ir por ahi.^";
      'coger': if (place == 2 && lamp == 0) { lamp = 1; points = points + 5; print "Cogida.^"; } else print "Nada.^";
      'inventario': if (lamp) print "Llevas una lampara.^"; else print "No llevas nada.^";
      'puntos': turn--; print "Llevas ", points, " puntos de 10.^";
      'esperar': print "Pasa el tiempo.^";
      default: turn--; print "No entiendo.^";
    } } ];
[ Describe; if (place == 1) print "Cueva^Una cueva.^"; else print "Sala^Una sala con una lampara.^"; ];
"""
SCORES = {
    "in words": ('print "So far you have earned "; Say(points); " points.";', True),
    "behind the word": ('print_ret "Points: ", points, " of 20.";', True),
    "as a share": ('print_ret "You are ", points * 100 / 20, "% done.";', False),
}
"""How a story prints its score, and whether a number in memory is what is printed."""
ANSWERS = {
    "beside treasures": (
        'print_ret "You have found ", other, " of 5 treasures and scored ", points, " of 20 points.";',
        ("likely", 5, 20),
    ),
    "behind a sentence on treasures": (
        'print_ret "You have found ", other, " of 5 treasures. Your score is ", points, ".";',
        ("likely", 5, 0),
    ),
    "before the points to get": ('print_ret "[", points, "/20]";', ("likely", 5, 20)),
    "in nothing but a number": ('print_ret "You own $", points, ".";', ("guessed", 5, 0)),
    "a fighter's points": (
        'print_ret "Level ", other, ", experience ", points, ", hit points ", points + other, ".";',
        ("not found", 0, 0),
    ),
}
"""What `score` prints: how sure the score is, the points after the first five, and those that there are to get."""
MORTAL = """
Array line buffer 60; Array words -> 130; Global points; Global ended; Global lives = 1; Global key;
[ Main; print "A cave.^";
  for (::) {
    print "^>"; Read();
    switch (words-->1) {
      'look': print "A cave.^";
      'inventory': print "You have nothing.^";
      'score': print "Your score is ", points, ".^";
      'jump': ended = 1;
      'wave': ended = 2;
      'wait': print "Time passes.^";
      default: print "I don't know that.^";
    }
    if (ended == 1 && lives) { ended = 0; lives--; print "You die, and get another life.^"; }
    if (ended) {
      if (ended == 2) print "*** You have won ***^"; else print "*** You have died ***^";
      for (::) { print "^Would you like to RESTART, RESTORE a saved game or QUIT? > "; read line words; }
    }
  } ];
[ Read; line->0 = 50; line->1 = 0; words->0 = 10; read line words; ];
"""
IN_VERSION_3 = """
Global place; Global points; Global turns; Array line buffer 60; Array words -> 130;
Object cave "Damp Cave";
[ Main; Begin(); ];
[ Begin; place = cave;
  for (::) {
    turns++; print "^>"; line->0 = 50; words->0 = 10; read line words;
    switch (words-->1) {
      'look': print "A cave.^";
      'inventory': print "You have nothing.^";
      'wave': points = points + 5; print "Well waved.^";
      default: print "I don't know that.^";
    } } ];
"""
"""The interpreter shows the status line of such a story."""
Compile = Callable[..., Path]


@pytest.fixture
def compile_story(tmp_path: Path) -> Compile:
    def compile_source(source: str, version: int = 5) -> Path:
        (tmp_path / "story.inf").write_text(source)
        name = f"story.z{version}"
        subprocess.run(["inform6", f"-v{version}", "story.inf", name], cwd=tmp_path, check=True, capture_output=True)
        return tmp_path / name

    return compile_source


@pytest.mark.skipif(shutil.which("inform6") is None, reason="the Inform 6 compiler is not installed")
@pytest.mark.parametrize("kind", OPENINGS)
def test_what_is_typed_until_the_story_takes_commands(kind: str, compile_story: Compile) -> None:
    code, expected = OPENINGS[kind]
    profile = discover(read_story(compile_story(f"{ADVENTURE} [ Opening; {code} ];")))
    assert profile.opening == expected
    if expected:
        assert profile.score is not None


@pytest.mark.skipif(shutil.which("inform6") is None, reason="the Inform 6 compiler is not installed")
def test_the_opening_has_a_budget(compile_story: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _ = OPENINGS["two menus"]
    path = compile_story(f"{ADVENTURE} [ Opening; {code} ];")
    monkeypatch.setattr("xtx.games.discovery.discover.BUDGET", 1000)
    assert discover(read_story(path)).opening == ()


@pytest.mark.skipif(shutil.which("inform6") is None, reason="the Inform 6 compiler is not installed")
def test_a_story_in_another_language_is_asked_in_its_own_words(compile_story: Compile) -> None:
    path = compile_story(SPANISH)
    profile = discover(read_story(path))
    assert profile.spoken["look"] == "mirar"
    assert profile.spoken["score"] == "puntos"
    assert profile.score is not None and profile.moves is not None
    assert profile.max_score == 10
    path.with_suffix(".json").write_bytes(encode_profile(profile))
    game = StoryGame(GameSpec(str(path), actions="whole"))
    first = game.reset(1)
    assert "Una cueva." in first.look and "No llevas nada" in first.inventory
    assert "coger" in game.step("norte").observation.actions
    assert game.step("coger").reward == 5
    assert "lampara" in game.step("esperar").observation.inventory
    game.close()
    english = msgspec.structs.replace(profile, spoken={})
    assert "spoken" not in make_profile_fields(english)  # profiles of earlier versions keep their keys
    assert (
        make_profile_key(english)
        != make_profile_key(profile)
        == make_profile_key(msgspec.json.decode(encode_profile(profile), type=Profile))
    )


@pytest.mark.skipif(shutil.which("inform6") is None, reason="the Inform 6 compiler is not installed")
@pytest.mark.parametrize("kind", SCORES)
def test_scores_that_are_printed_in_other_ways(kind: str, compile_story: Compile) -> None:
    code, in_memory = SCORES[kind]
    story = ADVENTURE.replace('print "Your score is ", points, ".^";', "Told();")
    say = '[ Say n; if (n > 99) { Say(n / 100); print " hundred and "; n = n % 100; } switch (n) {'
    say += " ".join(f'{number}: print "{word}";' for number, word in enumerate(("zero", "one", "two", "three", "four")))
    say += ' 5: print "five"; 6: print "six"; 10: print "ten"; default: print "many"; } ];'
    story = read_story(compile_story(f"{story} {say} [ Opening; ]; [ Told; {code} ];"))
    profile = discover(story)
    assert (profile.score is not None) == in_memory
    emulator = Emulator(replace(story, profile=profile))
    emulator.reset(1)
    assert emulator.score == 0
    emulator.step("wave")
    assert emulator.score == (5 if in_memory else 25)
    emulator.close()


@pytest.mark.skipif(shutil.which("inform6") is None, reason="the Inform 6 compiler is not installed")
@pytest.mark.parametrize("kind", ANSWERS)
def test_the_score_among_other_numbers(kind: str, compile_story: Compile) -> None:
    code, (sureness, gained, maximum) = ANSWERS[kind]
    story = ADVENTURE.replace('print "Your score is ", points, ".^";', "Told();").replace(
        "Global key;", "Global other = 3;"
    )
    story = read_story(compile_story(f"{story} [ Opening; ]; [ Told; {code} ];"))
    profile = discover(story)
    assert next(f.sureness for f in profile.findings if f.what == "score") == sureness
    assert profile.max_score == maximum
    emulator = Emulator(replace(story, profile=profile))
    emulator.reset(1)
    emulator.step("wave")
    assert emulator.score == gained
    emulator.close()


@pytest.mark.skipif(shutil.which("inform6") is None, reason="the Inform 6 compiler is not installed")
@pytest.mark.parametrize(("minutes", "sureness"), [(1, "likely"), (7, "guessed")])
def test_a_time_is_no_number_of_moves_for_certain(minutes: int, sureness: str, compile_story: Compile) -> None:
    story = ADVENTURE.replace('points, ".^"', 'points, ", in ", key, " turns.^"')
    story = story.replace('print "^>";', f'key = key + {minutes}; print "^>";')
    profile = discover(read_story(compile_story(f"{story} [ Opening; ];")))
    assert [f.sureness for f in profile.findings if f.what == "moves"] == [sureness]
    assert profile.moves is not None


@pytest.mark.skipif(shutil.which("inform6") is None, reason="the Inform 6 compiler is not installed")
def test_points_in_a_status_line_of_a_story_that_says_it_keeps_no_score(compile_story: Compile) -> None:
    story = ADVENTURE.replace('"Your score is ", points, ".^"', '"There is no score in this story.^"')
    status = '@split_window 2; @set_window 1; @set_cursor 1 1; spaces 60; @set_cursor 1 2; print "Cave";'
    status += '@set_cursor 2 1; spaces 60; @set_cursor 2 2; print "Points: ", points, "   Health: 100%"; @set_window 0;'
    profile = discover(
        read_story(compile_story(story.replace('print "^>";', f'{status} print "^>";') + "[ Opening; ];"))
    )
    assert profile.score is not None
    assert [f.how for f in profile.findings if f.what == "score"] == ["shown in the status line"]


@pytest.mark.skipif(shutil.which("inform6") is None, reason="the Inform 6 compiler is not installed")
def test_the_status_line_of_version_3_is_no_text(compile_story: Compile) -> None:
    story = read_story(compile_story(IN_VERSION_3, 3))
    emulator = Emulator(replace(story, profile=discover(story)))
    texts = [emulator.reset(1)]
    for command in ("look", "wave", "look"):
        emulator.step(command)
        texts.append(emulator.narration)
    assert emulator.score == 5
    assert not any("Score" in text or "Damp Cave" in text for text in texts)
    assert "Well waved." in texts[2]
    emulator.close()


@pytest.mark.skipif(shutil.which("inform6") is None, reason="the Inform 6 compiler is not installed")
def test_the_end_of_a_story_in_which_the_first_death_is_none(compile_story: Compile) -> None:
    story = read_story(compile_story(MORTAL))
    profile = discover(story)
    assert profile.end is not None
    assert profile.end.won == (2,)
    emulator = Emulator(replace(story, profile=profile))
    for commands, over, won in ((["jump"], False, False), (["jump", "jump"], True, False), (["wave"], True, True)):
        emulator.reset(1)
        for command in commands:
            emulator.step(command)
        assert (emulator.over, emulator.won) == (over, won)
    emulator.close()


@pytest.mark.parametrize(
    ("text", "is_line", "offered"),
    [
        ("1) Begin\n2) Restore", False, ("1", "2")),
        ("Press [N] for next or <Q> to quit", False, ("N", "Q", "n", "q")),
        ("B = begin, R = restore", False, ("B", "R", "b", "r")),
        ("Are you male or female?", True, ()),
        ("It's a dark night. Press any key.", False, ()),
    ],
)
def test_offered_answers(text: str, is_line: bool, offered: tuple[str, ...]) -> None:
    found = find_offered_answers(text, is_line)
    assert found[: len(offered)] == offered
    assert found[len(offered)] == ("no" if is_line else "\n")
    assert not is_line or {"male", "female"} <= set(found)


def write_story(folder: Path, build: Callable[[Code], None]) -> Path:
    code = Code(CODE)
    build(code)
    path = folder / "odd.z5"
    path.write_bytes(assemble(bytes(code.bytes)))
    return path


def loop(code: Code) -> None:
    code.op("jump", -1)


def leave(code: Code) -> None:
    code.op("quit")


def divide(code: Code) -> None:
    code.op("div", 1, 0, store=16)


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (loop, "the story's opening does not end: it cannot be played"),
        (divide, "died of SIGFPE: it cannot be played"),
        (leave, "ends before it asks for anything: it cannot be played"),
    ],
)
def test_a_story_that_never_asks_for_anything_is_refused_in_one_line(
    build: Callable[[Code], None], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, began = write_story(tmp_path, build), time.process_time()
    with pytest.raises(UserError, match=complaint):
        discover_in_child(read_story(path))
    assert main(["games", "add", str(path)]) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err and captured.err.count("\n") == 1 and not captured.out
    assert time.process_time() - began < 20


def test_a_story_that_cannot_be_played_does_not_keep_others_of_its_folder_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_story(tmp_path, leave)
    (tmp_path / "well.z5").write_bytes(find_story(find_default_game()).content)
    assert main(["games", "add", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("refused: ") and "cannot be played" in said[0] and "lowwater" in said[1]


def test_an_opening_that_does_not_end_ends_few_workers(tmp_path: Path) -> None:
    spec, began = GameSpec(str(write_story(tmp_path, loop)), search=False), time.process_time()
    with pytest.raises(UserError, match="the story's opening does not end"), GameVector(spec, 1, 1) as games:
        games.reset()
    assert time.process_time() - began < 30


def test_a_story_that_ends_at_once_can_be_looked_at(tmp_path: Path) -> None:
    path = write_story(tmp_path, leave)
    with GameVector(GameSpec(str(path), search=False), 1, 1) as games:
        assert games.reset()[0].score == 0
