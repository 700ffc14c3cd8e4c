"""The embedded adventure is what it claims to be: winnable, minimal, deterministic, and full of the right traps."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from jericho import FrotzEnv

from xtx.games.catalog.profile import Profile, read_profile
from xtx.games.zmachine.story_memory import Header, ObjectTree, read_dictionary

ROOT = Path(__file__).parents[3]
DATA = ROOT / "xtx" / "games" / "catalog" / "data"
HANG = ROOT / "stories" / "hang"
DIED, WON, MUD, DROWNED, SEA = 1, 2, 3, 4, 5
DIRECTIONS = ("north", "south", "east", "west", "up", "down", "northeast", "northwest", "southeast", "southwest")


@dataclass
class Player:
    """A story in plain Jericho, read through its profile."""

    profile: Profile
    story: bytes
    env: FrotzEnv

    def __post_init__(self) -> None:
        header = Header.read(self.story)
        self.header = header
        self.world = np.ones(header.dynamic_size, dtype=bool)
        self.world[:64] = False
        for start, end in self.profile.volatile:
            self.world[start:end] = False
        self.mask = np.full(header.attribute_bytes, 255, dtype=np.uint8)
        for attribute in self.profile.ignored_attributes:
            self.mask[attribute // 8] &= ~np.uint8(128 >> attribute % 8)

    def ram(self) -> npt.NDArray[np.uint8]:
        return np.array(self.env.get_state()[0])[: self.header.dynamic_size]

    def state(self) -> bytes:
        """All bytes that make up the world."""
        ram = self.ram()
        tree = ram[self.header.first_object : self.header.compute_object_address(self.profile.objects + 1)]
        tree.reshape(-1, self.header.object_size)[:, : self.header.attribute_bytes] &= self.mask
        return ram[self.world].tobytes()

    @property
    def score(self) -> int:
        return self.profile.score.read(self.ram())

    @property
    def end(self) -> int:
        return self.profile.end.read(self.ram())

    def play(self, commands: Sequence[str]) -> list[int]:
        """The score after each command, from the beginning; stops where the game ends."""
        self.env.reset()
        scores = []
        for command in commands:
            self.env.step(command)
            scores.append(self.score)
            if self.end:
                break
        return scores


def open_player(folder: Path, name: str) -> Player:
    profile = read_profile(folder / f"{name}.json")
    path = folder / profile.file
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Jericho warns that it does not know the story
        env = FrotzEnv(str(path), seed=profile.seed)
    return Player(profile, path.read_bytes(), env)


@pytest.fixture(scope="module")
def player() -> Iterator[Player]:
    opened = open_player(DATA, "lowwater")
    yield opened
    opened.env.close()


def until(player: Player, command: str) -> list[str]:
    """The walkthrough before a command of it."""
    walkthrough = list(player.profile.walkthrough)
    return walkthrough[: walkthrough.index(command)]


def test_walkthrough_wins_with_every_point(player: Player) -> None:
    scores = player.play(player.profile.walkthrough)
    assert 40 <= len(player.profile.walkthrough) <= 60
    assert len(scores) == len(player.profile.walkthrough)
    assert scores[-1] == player.profile.max_score
    assert player.end == WON and player.end in player.profile.end.won
    assert player.profile.moves.read(player.ram()) == len(scores)


def test_rewards_come_in_sizes_and_after_a_long_way(player: Player) -> None:
    scores = [0, *player.play(player.profile.walkthrough)]
    rewards = {move: now - before for move, (before, now) in enumerate(itertools.pairwise(scores), 1)}
    paid = {move: points for move, points in rewards.items() if points}
    assert all(points > 0 for points in paid.values())
    assert len(set(paid.values())) >= 5
    moves = [0, *paid]
    gap, at = max((later - earlier, later) for earlier, later in itertools.pairwise(moves))
    assert gap >= 7 and player.profile.walkthrough[at - 1] == "pull rope"  # the bell


def test_who_has_light_below_has_more_points_than_anybody_without(player: Player) -> None:
    """Points tell how far one is: the way that leaves out all that can be left out, and the dark with everything."""
    shore = until(player, "down")
    needless = ("take sixpence", "read tables", "take doorstop", "take pitch")
    bare = player.play([*(command for command in shore if command not in needless), "down"])[-1]
    dark = player.play([*(command for command in shore if command != "light lamp"), "down"])[-1]
    unlit = player.play([*shore, "blow lamp", "down"])[-1]
    assert max(dark, unlit) < bare
    assert player.play([*shore, "blow lamp", "down", "light lamp"])[-1] == player.play([*shore, "down"])[-1]


@pytest.mark.parametrize("thing", ["key", "sixpence", "lamp", "pitch"])
def test_what_is_needed_later_is_kept(player: Player, thing: str) -> None:
    """All but the doorstop, whose use nobody can know."""
    player.play([*until(player, "unlock locker with key")] if thing == "key" else until(player, "down"))
    if thing == "pitch":
        player.env.step("take pitch")
    before = player.state()
    for command in (f"drop {thing}", "drop all but doorstop", f"put {thing} in drum", f"throw {thing} at nets"):
        player.env.step(command)
        assert player.state() == before, command


def test_no_move_of_the_walkthrough_can_be_left_out(player: Player) -> None:
    walkthrough = player.profile.walkthrough
    for skipped in range(len(walkthrough)):
        scores = player.play(walkthrough[:skipped] + walkthrough[skipped + 1 :])
        assert scores[-1] < player.profile.max_score, f"{walkthrough[skipped]!r} is not needed"


def test_taking_all_at_once_saves_little(player: Player) -> None:
    text = "\n".join(player.profile.walkthrough)
    for takes in ("take key\ntake sixpence", "take lamp\ntake pitch"):
        text = text.replace(takes, "take all")
    text = text.replace("take doorstop\n", "").replace("take lamp\nfill lamp\ntake pitch", "take all\nfill lamp")
    text = text.replace("take rope\n", "").replace("take coracle", "take all")
    scores = player.play(text.split("\n"))
    assert scores[-1] == player.profile.max_score and player.end == WON
    assert len(scores) >= 40


def test_the_first_points_lead_into_the_dark(player: Player) -> None:
    """Within the moves that the honest way needs for its first 10 points the drain gives as many at once: a grave."""
    assert player.play(["down"]) == [10]
    honest = player.play(until(player, "down"))
    assert max(honest) <= 10
    for direction in DIRECTIONS:
        assert player.play(["down", direction]) == [10, 10]
        assert player.end == DIED, direction
    player.play(["down"])
    trapped = player.state()
    for command in ("look", "wait", "turn wheel", "pull chain", "take lamp", "lullay", "exit"):
        player.env.step(command)
        assert player.end == 0 and player.state() == trapped, command


def test_greed_within_a_few_moves_finds_only_the_trap(player: Player) -> None:
    """Brute force over every command of the walkthrough: the best score in four moves is had in the dark."""
    commands = sorted({*player.profile.walkthrough, *DIRECTIONS})
    player.env.reset()
    frontier = {player.state(): player.env.get_state()}
    seen = set(frontier)
    darkness = ObjectTree(player.story, player.header, player.profile.objects).names.index("(darkness object)")
    best: dict[int, set[bool]] = {}
    assert player.profile.location is not None
    for _ in range(4):
        reached = {}
        for saved in frontier.values():
            for command in commands:
                player.env.set_state(saved)
                player.env.step(command)
                key = player.state()
                if key not in seen:
                    seen.add(key)
                    dark = bool(player.end) or player.profile.location.read(player.ram()) == darkness
                    best.setdefault(player.score, set()).add(dark)
                    if not player.end:
                        reached[key] = player.env.get_state()
        frontier = reached
    assert max(best) >= 10 and best[max(best)] == {True}
    assert max(score for score, dark in best.items() if False in dark) <= 3


@pytest.mark.parametrize(
    ("before", "commands", "end"),
    [
        ("turn wheel", ["turn off lamp", "west"], DIED),
        ("push floodboard", ["west", "south"], MUD),
        ("pull rope", ["tie doorstop to bell", "tie rope to bell", "pull rope"], DROWNED),
        ("enter coracle", ["down"], DROWNED),
        ("open shutters", ["jump"], DIED),
        ("enter coracle", ["enter coracle", "east"], SEA),
    ],
)
def test_losing_ends(player: Player, before: str, commands: list[str], end: int) -> None:
    player.play([*until(player, before), *commands])
    assert player.end == end and end not in player.profile.end.won
    assert player.score < player.profile.max_score


def test_an_unmended_boat_drowns(player: Player) -> None:
    skipped = ("light pitch", "put pitch on coracle")
    player.play([command for command in player.profile.walkthrough if command not in skipped])
    assert player.end == DROWNED


def test_the_word_works_in_one_place_and_once_learned(player: Player) -> None:
    player.env.reset()
    worked = []
    for command in player.profile.walkthrough:
        saved, before = player.env.get_state(), player.state()
        player.env.step("lullay")
        if player.state() != before:
            worked.append(command)
        player.env.set_state(saved)
        player.env.step(command)
    assert worked == ["lullay"]
    player.play([*until(player, "push floodboard"), "lullay", "east"])
    unlearned = player.state()
    player.env.step("east")
    assert player.state() == unlearned


def test_the_way_back_for_what_was_forgotten(player: Player) -> None:
    """The drain is one-way, but the hatch opens from below: an object left behind costs moves, not the game."""
    player.play([*until(player, "pull chain"), "open hatch", "up", "north", "south", "south", "pull chain"])
    gate = player.state()
    player.play([*until(player, "pull chain"), "open hatch", "pull chain"])
    assert player.state() == gate


def test_what_does_nothing_changes_nothing(player: Player) -> None:
    """The profile's volatile ranges and ignored attributes hold all that parsing and printing leave behind."""
    player.env.reset()
    for command in player.profile.walkthrough:
        saved, before = player.env.get_state(), player.state()
        for idle in ("look", "inventory", "wait", "examine me", "xyzzy", "smell", "put me in me", "take what is not"):
            player.env.step(idle)
            assert player.state() == before, (command, idle)
        player.env.set_state(saved)
        player.env.step(command)
        assert player.state() != before, command


def test_every_thing_has_a_noun_the_parser_knows(player: Player) -> None:
    dictionary = read_dictionary(player.story, player.header)
    tree = ObjectTree(player.story, player.header, player.profile.objects)
    links = tree.read_links(player.ram())
    rooms = {number for number in range(1, player.profile.objects + 1) if links[number, 2] and not links[number, 0]}
    things = [n for n in tree.names[28:] if n and tree.names.index(n) not in rooms]
    assert len(things) > 30
    unknown = [name for name in things if name[0].islower() and not dictionary.has_word(name.split()[-1])]
    assert unknown == []


def test_same_seed_same_text(player: Player) -> None:
    def transcript(seed: int) -> list[str]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            env = FrotzEnv(str(DATA / player.profile.file), seed=seed)
        text = [env.reset()[0], *(env.step(command)[0] for command in player.profile.walkthrough)]
        env.close()
        return text

    assert transcript(1) == transcript(7)  # no chance at all


def test_hang_behaves_until_it_is_told_not_to() -> None:
    player = open_player(HANG, "hang")
    assert player.play(player.profile.walkthrough) == [1, 1, 1]
    assert player.end == WON
    player.play(["down", "south"])
    assert player.end == DIED and player.score == 0
    player.env.reset()
    assert "round and round" in player.env.step("spin")[0]
    assert player.env.step("crash")[0].strip() == ""
    assert player.env._emulator_halted()
    player.env.reset()
    assert "Hall" in player.env.step("look")[0]
    player.env.close()


@pytest.mark.parametrize(
    ("command", "status"), [("hang", None), ("examine bomb", None), ("divide", -8), ("burst", -11)]
)
def test_hang_hangs_and_bursts(command: str, status: int | None) -> None:
    code = (
        "import sys, warnings; warnings.simplefilter('ignore'); from jericho import FrotzEnv\n"
        "env = FrotzEnv(sys.argv[1]); env.reset(); print('ready', flush=True); env.step(sys.argv[2])"
    )
    arguments = [sys.executable, "-c", code, str(HANG / "hang.z5"), command]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            assert process.wait(timeout=1.0 if status is None else 60) == status
        except subprocess.TimeoutExpired:
            assert status is None
        finally:
            process.kill()


@pytest.mark.skipif(shutil.which("inform6") is None, reason="the Inform 6 compiler is not installed")
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_the_sources_give_the_shipped_files(tmp_path: Path) -> None:
    settings = [f"OUT={tmp_path / 'out'}", f"BUILD={tmp_path / 'build'}", f"PYTHON={sys.executable}"]
    subprocess.run(["make", "-s", "-C", str(ROOT / "stories"), *settings], check=True, capture_output=True)
    shipped = [DATA / "lowwater.z5", DATA / "lowwater.json", HANG / "hang.z5", HANG / "hang.json"]
    for path in shipped:
        assert (tmp_path / "out" / path.relative_to(ROOT)).read_bytes() == path.read_bytes(), path.name
