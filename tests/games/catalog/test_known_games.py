"""The catalog's facts are Jericho's; its finding and adding of files is ours.

`python tests/games/catalog/test_known_games.py` writes xtx/games/catalog/data/catalog.json anew after a new Jericho.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from xtx.core import UserError
from xtx.games.catalog import known_games
from xtx.games.catalog.profile import read_profile, write_profile
from xtx.games.user_collection import add_games

PAPER = {
    *("zork1", "inhumane", "ludicorp", "library", "zork3", "pentari"),
    *("detective", "balances", "deephome", "enchanter", "dragon", "omniquest"),
}


def jericho_facts() -> list[dict[str, Any]]:
    """The catalog's content, made from Jericho itself."""
    import jericho
    from jericho import defines

    bindings = sorted(defines.BINDINGS_DICT.items(), key=lambda item: item[1]["name"])
    library = ctypes.CDLL(str(Path(jericho.__file__).parent / "libfrotz.so"))
    index = ctypes.c_int.in_dll(library, "ROM_IDX")
    # libfrotz numbers its games in the order of Jericho's own table, but 905 under N ("nine05"), behind night.
    order = [facts["name"] for facts in defines.BINDINGS_DICT.values()]
    order.remove("905")
    order.insert(order.index("night") + 1, "905")
    facts = []
    for md5, game in bindings:
        index.value = order.index(game["name"]) + 1
        facts.append(
            {
                "name": game["name"],
                "file": game["rom"],
                "md5": md5,
                "max_score": library.get_max_score(),
                "walkthrough_length": len(game["walkthrough"].split("/")) if "walkthrough" in game else 0,
                "seed": game["seed"],
                "paper": game["name"] in PAPER,
            }
        )
    return facts


def own_story(folder: Path, name: str = "mine", profile: bool = True) -> Path:
    """A story that nobody knows: the embedded adventure with another serial number, and its profile beside it."""
    game = known_games.find_story(known_games.find_default_game())
    assert game.profile is not None
    content = game.content[:0x12] + name.encode().ljust(6)[:6] + game.content[0x18:]
    path = folder / f"{name}.z5"
    path.write_bytes(content)
    if profile:
        described = msgspec.structs.replace(game.profile, name=name, file=path.name, md5=md5_of(content))
        write_profile(described, path.with_suffix(".json"))
    return path


def md5_of(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def embedded_file() -> Path:
    return known_games.find_story(known_games.find_default_game()).path


def pretend(monkeypatch: pytest.MonkeyPatch, name: str, content: bytes) -> None:
    """Makes the catalog believe that a game of Jericho's has this content."""
    changed = tuple(
        msgspec.structs.replace(entry, md5=md5_of(content)) if entry.name == name else entry
        for entry in known_games.list_entries()
        if not entry.embedded
    )
    monkeypatch.setattr(known_games, "_read_jericho_entries", lambda: changed)


# --- facts ----------------------------------------------------------------------------------------------------------


def test_facts_are_jerichos() -> None:
    assert json.loads((known_games.DATA / "catalog.json").read_text()) == jericho_facts()


@pytest.mark.roms
def test_maxima_are_those_of_the_loaded_games() -> None:
    from xtx.games.emulator.frotz import Emulator

    seen = 0
    for entry in known_games.list_entries():
        path, _ = known_games.locate_story(entry)
        if path is not None:
            emulator = Emulator(known_games.find_story(entry.name))
            facts = (
                emulator.bindings.name,
                emulator.bindings.max_score,
                len(emulator.bindings.walkthrough),
                emulator.bindings.walkthrough_seed,
            )
            assert facts == (entry.name, entry.max_score, entry.walkthrough_length, entry.seed)
            emulator.close()
            seen += 1
    assert seen >= 13


def test_names_and_stories_are_distinct() -> None:
    known = known_games.list_entries()
    assert len({entry.name for entry in known}) == len({entry.md5 for entry in known}) == len(known) >= 58
    assert {entry.name for entry in known if entry.paper} == PAPER
    assert known_games.find_default_game() in [entry.name for entry in known if entry.embedded]


def test_extra_actions() -> None:
    assert known_games.find_extra_actions("acorncourt") == ("fix bucket with acorn",)
    assert known_games.find_extra_actions("zork1") == ()
    assert len(known_games.find_extra_actions("spirit")) == 127


# --- finding --------------------------------------------------------------------------------------------------------


def test_the_embedded_adventure_is_always_there() -> None:
    name = known_games.find_default_game()
    story = known_games.find_story(name)
    assert story.profile is not None
    assert story.profile.name == name
    assert known_games.find_story(f"{name.upper()}.z5").md5 == story.md5
    assert known_games.find_story(str(story.path)).profile == story.profile


@pytest.mark.parametrize("where", ["first", "second", "user"])
def test_searched_folders(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = embedded_file().read_bytes()
    pretend(monkeypatch, "zork1", content)
    first, second = tmp_path / "first", tmp_path / "second"
    monkeypatch.setenv("XTX_GAMES", os.pathsep.join([str(first), "", str(second)]))
    folder = {"first": first, "second": second, "user": known_games.find_user_folder()}[where]
    folder.mkdir(parents=True)
    (folder / "zork1.z5").write_bytes(content)
    for typed in ("zork1", "Zork1", "zork1.z5", "ZORK1.Z5", "zork1.z3"):
        assert known_games.find_story(typed).path == folder / "zork1.z5"


def test_user_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert known_games.find_user_folder() == tmp_path / "xtx" / "games"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for unset in ("", "relative"):
        monkeypatch.setenv("XDG_DATA_HOME", unset)
        assert known_games.find_user_folder() == tmp_path / "home" / ".local" / "share" / "xtx" / "games"


def test_another_release_is_passed_over_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTX_GAMES", str(tmp_path))
    shutil.copy(embedded_file(), tmp_path / "zork1.z5")
    with pytest.raises(UserError, match=r"zork1\.z5 is another story or release: its md5 does not fit"):
        known_games.find_story("zork1")


def test_a_story_under_another_name_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = embedded_file().read_bytes()
    pretend(monkeypatch, "zork1", content)
    monkeypatch.setenv("XTX_GAMES", str(tmp_path))
    (tmp_path / "zork1.z5").write_bytes(b"no story at all")
    (tmp_path / "Zork One.Z5").write_bytes(content)
    assert known_games.find_story("zork1").path.name == "Zork One.Z5"


def test_a_replaced_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = own_story(tmp_path, "zork1", profile=False).read_bytes()
    pretend(monkeypatch, "zork1", content)
    monkeypatch.setenv("XTX_GAMES", str(tmp_path))
    (tmp_path / "zork1.z5").write_bytes(content[:-1])
    with pytest.raises(UserError):
        known_games.find_story("zork1")
    (tmp_path / "zork1.z5").write_bytes(content)
    assert known_games.find_story("zork1").path == tmp_path / "zork1.z5"


def test_a_missing_game_says_where_to_put_and_get_it() -> None:
    with pytest.raises(UserError) as caught:
        known_games.find_story("curses")
    text = str(caught.value)
    wanted = ("curses.z5", str(known_games.find_user_folder()), "XTX_GAMES", "xtx games add", "Jericho game suite")
    assert all(part in text for part in wanted)
    assert "Interactive Fiction Archive" in text
    assert "\n" not in text


def test_a_mistyped_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XTX_GAMES", os.pathsep.join([str(tmp_path), str(tmp_path / "gmes")]))
    assert known_games.list_absent_folders() == (tmp_path / "gmes",)
    with pytest.raises(UserError, match="gmes, which is no folder"):
        known_games.find_story("curses")


def test_an_unknown_name_gets_near_ones() -> None:
    with pytest.raises(UserError, match="did you mean zork"):
        known_games.find_story("zrok1")
    with pytest.raises(UserError, match=r"run `.*xtx games`"):
        known_games.find_story("qqqqqq")


def test_a_story_that_nobody_knows_has_what_its_file_says(tmp_path: Path) -> None:
    story = known_games.find_story(str(own_story(tmp_path, profile=False)))
    assert story.profile is not None
    assert story.profile.is_bare
    assert (story.profile.score, story.profile.end, story.profile.player) == (None, None, None)
    assert "take/get OBJ" in story.profile.grammar or any("take" in t for t in story.profile.grammar)


def test_a_profile_beside_the_story_describes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = own_story(tmp_path)
    story = known_games.find_story(str(path))
    assert story.profile is not None
    assert story.profile.name == "mine"
    monkeypatch.setenv("XTX_GAMES", str(tmp_path))
    assert known_games.find_story("mine").path == path
    entry = known_games.find_entry("mine")
    assert (entry.embedded, entry.paper, entry.md5) == (False, False, story.md5)


def test_bad_profiles_do_not_spoil_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = known_games.list_entries()
    path = own_story(tmp_path)
    path.with_suffix(".json").write_text('{"name": "mine"}')
    monkeypatch.setenv("XTX_GAMES", str(tmp_path))
    assert known_games.list_entries() == before
    with pytest.raises(UserError, match=r"mine\.json: not a game profile"):
        known_games.find_story(str(path))


# --- adding ---------------------------------------------------------------------------------------------------------


def test_add_a_story_that_jericho_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = own_story(tmp_path, "any", profile=False).read_bytes()
    pretend(monkeypatch, "zork1", content)
    (added,) = add_games(tmp_path / "any.z5")
    assert (added.outcome, added.detail) == ("added", "zork1")
    assert known_games.find_story("zork1").path == known_games.find_user_folder() / "zork1.z5"
    (again,) = add_games(tmp_path / "any.z5")
    assert again.outcome == "there"
    assert os.listdir(known_games.find_user_folder()) == ["zork1.z5"]


def test_add_mends_a_damaged_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = own_story(tmp_path, "any", profile=False)
    pretend(monkeypatch, "zork1", path.read_bytes())
    known_games.find_user_folder().mkdir(parents=True)
    (known_games.find_user_folder() / "zork1.z5").write_bytes(b"half")
    assert add_games(path)[0].outcome == "added"
    assert known_games.find_story("zork1").content == path.read_bytes()


def test_add_with_profile(tmp_path: Path) -> None:
    path = own_story(tmp_path)
    profile = path.with_suffix(".json").rename(tmp_path / "other.json")
    assert add_games(path, profile)[0].detail == "mine"
    story = known_games.find_story("mine")
    assert story.path == known_games.find_user_folder() / "mine.z5"
    assert story.profile == read_profile(profile)
    # From now on the story is known wherever it lies.
    assert known_games.find_story(str(path)).profile == story.profile
    assert add_games(path)[0].outcome == "there"


def test_add_a_folder_goes_on_after_bad_files(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    own_story(tmp_path / "deep")
    (tmp_path / "bad.z5").write_bytes(b"nothing")
    own_story(tmp_path, "strange", profile=False)
    (tmp_path / "readme.txt").write_text("no story")
    outcomes = {addition.path.name: addition.outcome for addition in add_games(tmp_path)}
    assert outcomes == {"bad.z5": "refused", "strange.z5": "added", "mine.z5": "added"}


def test_add_a_folder_goes_on_after_a_closed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir()
    own_story(tmp_path)
    scandir = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    outcomes = {addition.path.name: addition.outcome for addition in add_games(tmp_path)}
    assert outcomes == {"closed": "refused", "mine.z5": "added"}


def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = own_story(tmp_path)
    good = path.with_suffix(".json")
    other = own_story(tmp_path, "other").with_suffix(".json")
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    taken = tmp_path / "taken.json"
    write_profile(msgspec.structs.replace(read_profile(good), name="zork1"), taken)
    outside = tmp_path / "outside.json"
    write_profile(msgspec.structs.replace(read_profile(good), name="../up"), outside)
    empty = tmp_path / "empty"
    empty.mkdir()
    cases = [
        (path, other, "describes another story"),
        (path, broken, "not a game profile"),
        (path, tmp_path / "absent.json", "cannot be read"),
        (path, taken, "another game called zork1"),
        (path, outside, "cannot be typed"),
        (empty, None, "holds no story files"),
        (empty, good, "is a folder; --profile"),
        (tmp_path / "absent.z5", None, "does not exist"),
    ]
    for file, profile, reason in cases:
        with pytest.raises(UserError, match=reason):
            add_games(file, profile)
    pretend(monkeypatch, "zork1", path.read_bytes())
    with pytest.raises(UserError, match="add it without --profile"):
        add_games(path, good)
    assert not known_games.find_user_folder().exists()


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = own_story(tmp_path)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space left on device"):
        add_games(path)
    assert os.listdir(known_games.find_user_folder()) == []


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot be written"):
        add_games(own_story(tmp_path))


@pytest.mark.roms
def test_add_the_real_games(real_story: Callable[[str], Path]) -> None:
    folder = real_story("zork1").parent
    assert {addition.outcome for addition in add_games(folder)} == {"added"}
    assert known_games.find_story("zork1").path == folder / "zork1.z5"


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(entry) for entry in jericho_facts())
    (known_games.DATA / "catalog.json").write_text(f"[\n{lines}\n]\n")
