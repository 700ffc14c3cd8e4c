"""Stories without a profile: what is found out about them is what is known of them otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from zcode import _encode

from xtx.cli.main import main
from xtx.cli.training.training_session import TrainOptions
from xtx.config.settings import RunConfig
from xtx.games.catalog import known_games
from xtx.games.catalog.profile import Profile, Word, read_profile
from xtx.games.catalog.profile_format import encode_profile, make_profile_fields, make_profile_key
from xtx.games.catalog.story_file import Story, read_story
from xtx.games.discovery.discover import discover, find_title
from xtx.games.discovery.isolated_discovery import discover_in_child
from xtx.games.discovery.score import number_role
from xtx.games.discovery.transcript import TranscriptTurn, measure_likeness, read_turns
from xtx.games.emulator.frotz import Emulator, Status
from xtx.games.emulator.printed_end import find_ending, is_end_text, is_victory_text
from xtx.games.emulator.printed_score import read_number
from xtx.games.story_game import GameSpec, StoryGame
from xtx.games.user_collection import add_games
from xtx.games.zmachine.infocom_grammar import read_infocom_templates
from xtx.training.prepare import prepare

UNKNOWN = Path(__file__).parents[4] / "shared" / "unknown-stories"


def stranger(folder: Path, content: bytes, name: str = "stranger.z5") -> Path:
    """The story with another serial number, by which nothing knows it."""
    path = folder / name
    path.write_bytes(content[:0x12] + b"000000" + content[0x18:])
    return path


@pytest.fixture(scope="module")
def known() -> Story:
    return known_games.find_story(known_games.find_default_game())


@pytest.fixture(scope="module")
def found(known: Story, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Story, Profile]]:
    """The embedded adventure as a story that nobody knows, and what is found out about it."""
    story = read_story(stranger(tmp_path_factory.mktemp("stories"), known.content))
    yield story, discover(story)


def test_found_as_the_compiler_says(known: Story, found: tuple[Story, Profile]) -> None:
    profile, said = found[1], known.profile
    assert said is not None
    assert (profile.score, profile.moves) == (said.score, said.moves)
    assert (profile.end, profile.player, profile.max_score) == (said.end, said.player, said.max_score)
    assert set(said.grammar) <= set(profile.grammar)
    assert not profile.verified
    assert {f.what: f.sureness for f in profile.findings}["end"] == "sure"


def test_the_same_story_gives_the_same_profile(found: tuple[Story, Profile]) -> None:
    story, profile = found
    assert encode_profile(discover_in_child(story)) == encode_profile(profile)


def test_plays_along_the_walkthrough(known: Story, found: tuple[Story, Profile]) -> None:
    story, profile = found
    one, other = Emulator(known), Emulator(replace(story, profile=profile))
    one.reset(one.bindings.walkthrough_seed), other.reset(one.bindings.walkthrough_seed)
    for command in one.bindings.walkthrough:
        assert one.step(command) is other.step(command) is Status.DONE
        assert (one.score, one.moves, one.over, one.won) == (other.score, other.moves, other.over, other.won)
    assert other.won
    one.close(), other.close()


def test_add_verify_export_and_back(
    known: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = stranger(tmp_path, known.content)
    assert main(["games", "add", str(path)]) == 0
    assert "unverified" in capsys.readouterr().out
    commands = tmp_path / "commands.txt"
    assert known.profile is not None
    commands.write_text("xyzzy\nplugh\n")
    assert main(["games", "verify", "stranger", str(commands)]) == 1
    assert "nothing could be compared" in capsys.readouterr().out
    commands.write_text("# the way\n" + "\n".join(known.profile.walkthrough))
    assert main(["games", "verify", "stranger", str(commands)]) == 0
    assert "marked as verified" in capsys.readouterr().out
    assert main(["games", "export-profile", "stranger", "-o", "out.json"]) == 0
    exported = read_profile(tmp_path / "out.json")
    assert exported.verified
    assert exported.walkthrough == known.profile.walkthrough
    assert main(["games", "info", "stranger"]) == 0
    assert "found: score" in capsys.readouterr().out
    for file in known_games.find_user_folder().glob("stranger.*"):
        file.unlink()
    assert main(["games", "add", str(path), "--profile", "out.json"]) == 0
    assert known_games.find_story("stranger").profile == exported


def test_a_wrong_score_is_not_verified(known: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = stranger(tmp_path, known.content)
    assert known.profile is not None
    assert known.profile.moves is not None
    address = known.profile.moves.address
    assert main(["games", "add", str(path), "--score", hex(address)]) == 0
    profile = known_games.find_story("stranger").profile
    assert profile is not None
    assert profile.score == Word(address)
    commands = tmp_path / "commands.txt"
    commands.write_text("\n".join(known.profile.walkthrough))
    capsys.readouterr()
    assert main(["games", "verify", "stranger", str(commands)]) == 1
    assert "not marked as verified" in capsys.readouterr().out


def test_a_printed_score(known: Story, found: tuple[Story, Profile]) -> None:
    story, profile = found
    printed = msgspec.structs.replace(profile, score=None, printed_score=r"scored (\d+)")
    one, other = Emulator(known), Emulator(replace(story, profile=printed))
    one.reset(one.bindings.walkthrough_seed), other.reset(one.bindings.walkthrough_seed)
    for command in one.bindings.walkthrough:
        one.step(command), other.step(command)
        assert one.score == other.score
        assert one.ram[64:].tobytes() == other.ram[64:].tobytes()
    one.close(), other.close()


def test_a_printed_score_at_a_question_is_that_of_the_state(
    known: Story, found: tuple[Story, Profile], tmp_path: Path
) -> None:
    """It does not depend on what the process did before: a worker may be replaced, and a run resumed."""
    assert known.profile is not None
    path = stranger(tmp_path, known.content)
    printed = msgspec.structs.replace(found[1], score=None, printed_score=r"scored (\d+)", md5=found[0].md5)
    path.with_suffix(".json").write_bytes(encode_profile(printed))
    way = [*known.profile.walkthrough[: len(known.profile.walkthrough) // 2], "quit"]
    spec = GameSpec(str(path), search=False)
    first = StoryGame(spec)
    before = first.reset(1)
    for command in way:
        before = first.step(command).observation
    assert before.score > 0
    state, here = first.save(), first.here
    [answer] = first.emulator.read_responses(first.emulator.save(), ["score"])
    assert answer is not None and "scored" not in answer
    brought, restored = StoryGame(spec), StoryGame(spec)
    brought.rebuild(1, way)
    assert brought.here == here
    assert restored.restore(state).score == brought.step("no").observation.score == before.score
    for game in (first, brought, restored):
        game.close()


@pytest.mark.parametrize("hint", ["(", "no group", "5", "0xfffff"])
def test_a_bad_place_for_the_score(known: Story, hint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = stranger(tmp_path, known.content)
    assert main(["games", "add", str(path), "--score", hint]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "--score" in captured.err


def test_training_without_a_score_says_so(
    known: Story, found: tuple[Story, Profile], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stranger(tmp_path, known.content)
    blind = msgspec.structs.replace(found[1], score=None, printed_score="", md5=found[0].md5)
    path.with_suffix(".json").write_bytes(encode_profile(blind))
    prepare(RunConfig(game=str(path), agent="random", settings={}, steps=8, num_envs=1), TrainOptions(no_atlas=True))
    assert capsys.readouterr().err.count("every reward is 0") == 1


def test_names_that_are_taken_get_a_number(known: Story, tmp_path: Path) -> None:
    path = stranger(tmp_path, known.content, f"{known_games.find_default_game()}.z5")
    assert add_games(path)[0].detail == f"{known_games.find_default_game()}-2"


def test_keys_of_earlier_profiles_stay(known: Story) -> None:
    profile = known.profile
    assert profile is not None
    new = {"printed_score", "opening", "prompt", "findings", "verified"}
    assert not new & make_profile_fields(profile).keys()
    assert make_profile_key(profile) == make_profile_key(msgspec.structs.replace(profile, verified=False))
    assert make_profile_key(profile) != make_profile_key(msgspec.structs.replace(profile, printed_score="(1)"))


def test_a_bad_pattern_in_a_profile(known: Story, tmp_path: Path) -> None:
    assert known.profile is not None
    path = tmp_path / "bad.json"
    path.write_bytes(encode_profile(msgspec.structs.replace(known.profile, printed_score="(")))
    with pytest.raises(ValueError, match="printed_score is no regular expression"):
        read_profile(path)


# --- what is printed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "over", "won"),
    [
        ("*** You have won ***\n\nWould you like to RESTART, RESTORE a saved game or QUIT?", True, True),
        ("*** You have died ***\n\nWould you like to RESTART, RESTORE a saved game or QUIT?", True, False),
        ("Type RESTART, RESTORE, or QUIT:", True, False),
        ("You may restart the clock.", False, False),
        ("Congratulations!", False, True),
    ],
)
def test_endings(text: str, over: bool, won: bool) -> None:
    assert (is_end_text(text), is_victory_text(text)) == (over, won)


def test_words_of_an_ending() -> None:
    assert find_ending("...\n    *** You have starved ***\n\n") == "You have starved"
    assert find_ending("two * stars **") == ""


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("-3", -3),
        ("Ten", 10),
        ("no", 0),
        ("1,024", 1024),
        ("?", 0),
        ("two hundred and seven", 207),
        ("minus forty-two", -42),
        ("three thousand, one hundred", 3100),
        ("many", 0),
    ],
)
def test_numbers(text: str, number: int) -> None:
    assert read_number(text) == number


@pytest.mark.parametrize(
    ("text", "in_status", "role"),
    [
        ("Your TentScore: 207Moves: 2", True, "score"),  # names and numbers without spaces between
        ("Score: 5Moves: 207", True, "moves"),
        ("Garden    12/207", True, "moves"),
        ("Garden    207", True, "unknown"),
        ("You have scored 207 out of 300, in 4 turns.", False, "score"),
        ("You have scored 3 out of a possible 207, in 4 turns.", False, "maximum"),
        ("You have scored 3 out of 300, in 207 turns.", False, "moves"),
    ],
)
def test_what_a_printed_number_is(text: str, in_status: bool, role: str) -> None:
    at = re.search("207", text)
    assert at is not None
    assert number_role(text, at, in_status) == role


def test_title() -> None:
    assert find_title("\nLOW WATER\nAn Interactive Fiction by N. N.\nRelease 1") == "LOW WATER"
    assert find_title("Nothing here") == ""


def test_transcripts() -> None:
    assert read_turns("Welcome\n\n>look\nA room.\n\n> take lamp\nTaken.\n") == [
        TranscriptTurn("look", "A room."),
        TranscriptTurn("take lamp", "Taken."),
    ]
    assert read_turns("look\r\n# a note\n\ntake lamp") == [TranscriptTurn("look"), TranscriptTurn("take lamp")]
    assert measure_likeness("A dark room", "a DARK hall") == pytest.approx(2 / 3)


# --- Infocom's grammar ----------------------------------------------------------------------------------------------


START, GRAMMAR = 0x100, 0x200
PREPOSITION_IN = 0xFB
WORDS = {"in": (0x08, PREPOSITION_IN, 0), "put": (0x41, 254, 0), "save": (0x41, 253, 0), "take": (0x41, 255, 0)}


def infocom_story(fixed: bool, padding: int) -> bytes:
    """A story of version 3 that is a dictionary and a grammar: `take OBJ`, `put OBJ in OBJ` and `save`."""
    content = bytearray(0x400)
    content[0] = 3
    content[0x08:0x0A] = START.to_bytes(2, "big")
    content[0x0E:0x10] = GRAMMAR.to_bytes(2, "big")
    entries = b"".join(_encode(word, 6) + bytes(data) for word, data in WORDS.items())
    content[START : START + 4 + len(entries)] = bytes([0, 7, 0, len(WORDS)]) + entries
    if fixed:
        lines = [bytes([1] + 7 * [0]), bytes([2, 0, PREPOSITION_IN] + 5 * [0]), bytes(8)]
    else:
        lines = [bytes([1 << 6, 1, 0, 0]), bytes([2 << 6, 2, 0, 0, PREPOSITION_IN & 63, 0, 0]), bytes([0, 3])]
    at = GRAMMAR + 2 * len(lines)
    for i, line in enumerate(lines):
        content[GRAMMAR + 2 * i : GRAMMAR + 2 * i + 2] = at.to_bytes(2, "big")
        content[at : at + 1 + len(line)] = b"\1" + line
        at += 1 + len(line) + padding
    return bytes(content)


@pytest.mark.parametrize(("fixed", "padding"), [(True, 0), (True, 1), (False, 0), (False, 1)])
def test_infocom_grammar(fixed: bool, padding: int) -> None:
    assert read_infocom_templates(infocom_story(fixed, padding)) == ["take OBJ", "put OBJ in OBJ"]


def test_no_infocom_grammar(known: Story) -> None:
    for content in (known.content, bytes(infocom_story(True, 0)[:START]) + bytes(0x300)):
        with pytest.raises(ValueError, match=r"grammar|dictionary|verbs"):
            read_infocom_templates(content)


# --- real stories ---------------------------------------------------------------------------------------------------


@pytest.mark.roms
@pytest.mark.parametrize("name", ["detective", "zork1", "trinity", "lostpig"])
def test_found_as_jericho_says(name: str, tmp_path: Path) -> None:
    known = known_games.find_story(name)
    story = read_story(stranger(tmp_path, known.content, f"stranger{known.path.suffix}"))
    one, other = Emulator(known), Emulator(replace(story, profile=discover(story)))
    one.reset(one.bindings.walkthrough_seed), other.reset(one.bindings.walkthrough_seed)
    assert (one.player, one.bindings.max_score) == (other.player, other.bindings.max_score)
    for command in one.bindings.walkthrough:
        assert one.step(command) is other.step(command) is Status.DONE
        assert (one.score, one.over, one.won) == (other.score, other.over, other.won)
        if one.over:
            break
    one.close(), other.close()


@pytest.mark.roms
@pytest.mark.skipif(not UNKNOWN.is_dir(), reason="no stories that Jericho does not know are here")
@pytest.mark.parametrize("name", ["bunny", "building", "candy", "cia", "fable", "spot"])
def test_stories_that_nobody_knows(name: str) -> None:
    profile = discover(read_story(UNKNOWN / f"{name}.z5"))
    assert profile.player is not None
    assert profile.score is not None
    assert len(profile.grammar) > 50
