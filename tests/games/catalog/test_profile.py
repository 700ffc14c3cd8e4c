"""Profiles: the format, its errors, and what is read from compiled Inform stories."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import numpy as np
import pytest

from xtx.games.catalog.profile import (
    End,
    Profile,
    Word,
    find_overshadowed_readings,
    find_unlisted_templates,
    make_profile_from_debug,
    read_grammar_templates,
    read_profile,
    read_walkthrough,
    write_profile,
)

ROOT = Path(__file__).parents[3]
DATA = ROOT / "xtx" / "games" / "catalog" / "data"


def small_profile() -> Profile:
    return Profile(
        name="small",
        title="Small",
        file="small.z5",
        md5="0" * 32,
        max_score=3,
        player=4,
        objects=9,
        score=Word(100),
        moves=Word(102),
        end=End(104),
        word_length=9,
        grammar=("look", "take OBJ"),
        volatile=((200, 210),),
        walkthrough=("take lamp",),
    )


@pytest.fixture(scope="module")
def shipped() -> Profile:
    return read_profile(DATA / "lowwater.json")


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    write_profile(small_profile(), path)
    first = path.read_bytes()
    assert read_profile(path) == small_profile()
    write_profile(read_profile(path), path)
    assert path.read_bytes() == first


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"score": {"address": -1}}, "address"),
        ({"score": {"address": 70000}}, "address"),
        ({"score": {"address": 1, "size": 0}}, "size"),
        ({"md5": "short"}, "md5"),
        ({"player": 0}, "player"),
        ({"colour": "red"}, "colour"),
        ({"grammar": "look"}, "grammar"),
        ({"max_score": "many"}, "max_score"),
        ({"ignored_attributes": [48]}, "ignored_attributes"),
        ({"printed_score": r"score \d+"}, "printed_score has no group"),
        ({"printed_score": "("}, "printed_score is no regular expression"),
    ],
)
def test_a_wrong_field_is_named_in_one_line(tmp_path: Path, change: dict[str, object], complaint: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(msgspec.to_builtins(small_profile()) | change))
    with pytest.raises(ValueError, match=complaint) as caught:
        read_profile(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"name": "x"}', b"null"])
def test_what_is_no_profile_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a game profile"):
        read_profile(path)


@pytest.mark.parametrize("text", ["x\x1b[2J", "x\u202etac", "x\u2028"])
@pytest.mark.parametrize("field", ["name", "title", "author", "file"])
def test_a_profile_that_commands_a_terminal_is_refused(tmp_path: Path, field: str, text: str, shipped: Profile) -> None:
    path = tmp_path / "bad.json"
    write_profile(msgspec.structs.replace(shipped, **{field: text}), path)
    with pytest.raises(ValueError, match=f"its {field} has control characters"):
        read_profile(path)


def test_a_title_may_have_spaces_and_hyphens_of_all_kinds(tmp_path: Path, shipped: Profile) -> None:
    path = tmp_path / "good.json"
    titled = msgspec.structs.replace(shipped, title="Le tr\u00e9sor perdu\xa0! demi\xadtour")
    write_profile(titled, path)
    assert read_profile(path) == titled


def test_a_missing_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        read_profile(tmp_path / "none.json")


def test_words_are_signed_and_big_endian() -> None:
    ram = np.array([0, 5, 0xFF, 0xFE, 0x80], dtype=np.uint8)
    assert Word(0).read(ram) == 5
    assert Word(2).read(ram) == -2
    assert Word(4, 1).read(ram.tobytes()) == -128
    with pytest.raises(ValueError, match="no byte 5"):
        Word(4).read(ram)


def test_the_shipped_profile_names_the_shipped_story(shipped: Profile) -> None:
    content = (DATA / shipped.file).read_bytes()
    assert (shipped.name, shipped.title, shipped.max_score) == ("lowwater", "Low Water", 75)
    assert list(shipped.grammar) == read_grammar_templates(content, topics=False)
    assert all(start < end <= 0x10000 for start, end in shipped.volatile)
    kept = (shipped.score, shipped.end, shipped.location)
    inside = [word for word in kept if word and any(a <= word.address < b for a, b in shipped.volatile)]
    assert inside == []
    assert any(a <= shipped.moves.address < b for a, b in shipped.volatile)


def test_grammar_of_the_adventure(shipped: Profile) -> None:
    spelled = _spelled(shipped.grammar)
    wanted = (
        *("look", "wait", "inventory", "lullay", "say lullay", "take OBJ", "open OBJ", "read OBJ", "fill OBJ"),
        *("light OBJ", "turn OBJ", "pull OBJ", "push OBJ", "enter OBJ", "clean OBJ", "switch off OBJ"),
        *("unlock OBJ with OBJ", "put OBJ on OBJ", "put OBJ in OBJ", "tie OBJ to OBJ", "take OBJ off OBJ"),
    )
    assert set(wanted) <= spelled
    first_words = {template.split()[0] for template in spelled}
    assert not first_words & {"save", "restore", "quit", "score", "restart", "about", "script", "verify"}
    assert all(template.split().count("OBJ") <= 2 for template in shipped.grammar)
    assert len(set(shipped.grammar)) == len(shipped.grammar)
    # free text, numbers and directions are no names of objects
    assert not spelled & {"ask OBJ about OBJ", "look OBJ", "set OBJ to OBJ", "bother OBJ"}


def test_every_command_of_the_walkthrough_fits_a_template(shipped: Profile) -> None:
    spelled = {tuple(template.split()) for template in _spelled(shipped.grammar)}
    basic = {"north", "south", "east", "west", "up", "down"}
    for command in shipped.walkthrough:
        words = command.split()
        fits = any(
            len(words) == len(t) and all(p in ("OBJ", w) for p, w in zip(t, words, strict=True)) for t in spelled
        )
        assert fits or command in basic, command


def test_a_story_without_inform_grammar_is_refused(shipped: Profile) -> None:
    content = bytearray((DATA / shipped.file).read_bytes())
    start = int.from_bytes(content[0x0E:0x10], "big")
    content[start : start + 400] = bytes(400)
    with pytest.raises(ValueError, match="no Inform 6 grammar"):
        read_grammar_templates(bytes(content))


@pytest.mark.roms
@pytest.mark.parametrize("game", ["library", "detective", "deephome", "dragon", "ludicorp", "temple"])
def test_grammar_agrees_with_jerichos(game: str) -> None:
    """Both of Inform's layouts; what Jericho has and we leave out are commands to the program, and free text."""
    from jericho import FrotzEnv

    folder = os.environ.get("XTX_GAMES")
    if not folder:
        pytest.skip("XTX_GAMES is not set")
    path = Path(folder) / f"{game}.z5"
    env = FrotzEnv(str(path))
    theirs = _spelled(template for template in env.bindings["grammar"].split(";") if template)
    env.close()
    ours = _spelled(read_grammar_templates(path.read_bytes()))
    assert len(theirs & ours) > 150
    # talk, which Jericho's list has for some games only
    talk = {"answer", "ask", "consult", "l", "look", "read", "say", "scream", "shout", "speak", "tell", "yell"}
    assert {template.split()[0] for template in ours - theirs} <= talk | {"punch"}
    missing = {template for template in theirs - ours if template.count("OBJ") == 2}
    assert {template.split()[0] for template in missing} <= {"abstract", "adjust", "set", "ludis"}


def test_templates_that_a_list_lacks(shipped: Profile) -> None:
    """Not those for talk; and any reading of a template stands for it."""
    content = (DATA / shipped.file).read_bytes()
    assert find_unlisted_templates(content, shipped.grammar) == []
    listed = [t for t in shipped.grammar if not t.startswith("lullay")]
    assert find_unlisted_templates(content, listed) == [t for t in shipped.grammar if t.startswith("lullay")]
    assert find_unlisted_templates(content, sorted(_spelled(shipped.grammar))) == []


def test_a_reading_that_means_something_else() -> None:
    """What is dropped on something is put there; for throwing it takes another word."""
    listed = ["drop/throw OBJ at/on OBJ", "drop/put/throw OBJ on OBJ", "take OBJ"]
    assert list(find_overshadowed_readings(listed, {"drop OBJ on OBJ", "put OBJ on OBJ", "take OBJ"})) == [
        "drop OBJ at OBJ"
    ]
    assert list(find_overshadowed_readings(listed, {"throw OBJ at OBJ", "put OBJ on OBJ", "take OBJ"})) == []
    assert list(find_overshadowed_readings(listed, {"take OBJ"})) == []  # left out on purpose


def test_topics_are_holes_beside_an_object(shipped: Profile) -> None:
    content = (DATA / shipped.file).read_bytes()
    more = _spelled(read_grammar_templates(content)) - _spelled(shipped.grammar)
    assert {"ask OBJ about OBJ", "tell OBJ about OBJ", "look up OBJ in OBJ"} <= more
    assert not more & {"bother OBJ", "set OBJ to OBJ"}


def test_debugging_information_that_is_none() -> None:
    content = (DATA / "lowwater.z5").read_bytes()
    with pytest.raises(ValueError, match="not XML"):
        make_profile_from_debug(content, b"no", file="lowwater.z5")
    with pytest.raises(ValueError, match="object tree"):
        make_profile_from_debug(content, b"<inform-story-file/>", file="lowwater.z5")
    section = b"<story-file-section><type>object tree</type><end-address>900</end-address></story-file-section>"
    with pytest.raises(ValueError, match="Story"):
        make_profile_from_debug(content, b"<x>" + section + b"</x>", file="lowwater.z5")


def test_walkthrough_files(tmp_path: Path) -> None:
    path = tmp_path / "walkthrough.txt"
    path.write_text("# first\nnorth\n\n  take lamp  \n", "utf-8")
    assert read_walkthrough(path) == ["north", "take lamp"]


SMALL = """
Constant Story "SMALL"; Constant Headline "^s^"; Constant MAX_SCORE = 5; Serial "260101";
Include "Parser"; Include "VerbLib";
Global tide = 3;
[ Initialise; location = Room; ];
Object Room "Room" with description "A room." has light;
Include "Grammar";
Verb 'dance' * -> Dance * 'with' noun -> Dance;
[ DanceSub; tide++; "You dance."; ];
"""


@pytest.mark.skipif(shutil.which("inform6") is None, reason="the Inform 6 compiler is not installed")
@pytest.mark.parametrize("version", [5, 8])
def test_profile_of_a_new_story(tmp_path: Path, version: int) -> None:
    (tmp_path / "small.inf").write_text(SMALL)
    subprocess.run(
        ["inform6", f"-v{version}", "-k", "+include_path=/usr/share/inform6/library", "small.inf", "small.z"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    story, debug = (tmp_path / "small.z").read_bytes(), (tmp_path / "gameinfo.dbg").read_bytes()
    profile = make_profile_from_debug(story, debug, file="small.z", special=("tide", "absent"))
    assert (profile.name, profile.title, profile.max_score) == ("small", "SMALL", 5)
    assert len(profile.special) == 2
    assert Word(profile.special[0]).read(story) == 3
    with pytest.raises(ValueError, match="another story"):
        make_profile_from_debug((DATA / "lowwater.z5").read_bytes(), debug, file="small.z")
    assert not any(a <= profile.special[0] < b for a, b in profile.volatile)
    assert {"dance", "dance with OBJ"} <= set(profile.grammar)


def _spelled(templates: object) -> set[str]:
    """Every single command that templates with alternatives stand for."""
    assert not isinstance(templates, str)
    return {
        " ".join(parts)
        for template in templates  # type: ignore[attr-defined]
        for parts in itertools.product(*(word.split("/") for word in template.split()))
    }
