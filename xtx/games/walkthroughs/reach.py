"""How far the offered actions carry: a walkthrough played with valid actions only.

The share of a walkthrough's steps that valid actions reproduce (coverage.py) hides that one missing step
can block a game. Here the walkthrough is really played: a step that is not offered is replaced by offered actions that
lead to the same world, and left out where there are none. What counts is the score at the end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, permutations

import msgspec
import numpy as np

from xtx.games.emulator.frotz import Verdict, Verdicts
from xtx.games.story_game import StoryGame
from xtx.games.walkthroughs.player import Outcome, Player, Script, replace_word

MAX_REPLACEMENTS, MAX_FOR_ALL = 4, 16
"""Most offered actions that may stand for one step of the walkthrough, and for one that says `all`, which stands for as
many commands as there are things."""

_MAX_ORDERS, _MAX_WAITS = 24, 3
"""Most orders in which several actions are tried, and most turns of waiting before or behind them."""

_MAX_FIRST, _MAX_SECOND = 3, 10
"""Most first actions, and most second ones after each of them, that are tried together."""

_SECOND_VERBS = frozenset(("drop", "take", "get", "open", "close", "put", "throw", "push", "pull", "go", "give", "eat"))
"""What follows `and` is another command if it begins with one of these."""

_LIST = re.compile(r"\band\b|\bthen\b|\.|\ball\b|\bboth\b|\beverything\b|\bexcept\b|\bbut\b")
_SPEECH = re.compile(r"^(say|answer|shout|yell|scream|whisper|recite|sing|type|write|spell|speak)\b|[\"']")
_TOPIC = re.compile(r"\babout\b|^(ask|tell|consult|look up|order)\b|\bfor\b")
_NUMBER = re.compile(r"\d|\b(one|two|three|four|five|six|seven|eight|nine|ten)\b")
_PASSING_TIME = frozenset(("z", "wait", "look", "l", "g", "again"))
_IDLE = ("wait", "look", "inventory")
"""Actions that may stand for a step that cannot work."""

FOLLOWS = "after an earlier miss"
"""The kind of a step that changes the world in the walkthrough and cannot here, because of a step missed before it."""


@dataclass(frozen=True)
class PlayedStep:
    """One step of the walkthrough, and what was played for it."""

    step: int
    """Its number, from 1."""
    command: str
    room: str
    played: tuple[str, ...]
    """The offered actions that were played; none where the step was left out."""
    kind: str
    """Why a step that changes the world has no part in the game, see `classify_miss` and `FOLLOWS`; empty for all other
    steps."""
    actions: int
    """Number of offered actions."""
    score: int
    """The score after it."""
    won: bool = False
    """Whether it won the game."""
    lost: int = 0
    """Points of the walkthrough that cannot be had any more because it was not offered."""


@dataclass(frozen=True)
class Reach:
    """What a walkthrough comes to when it is played with offered actions only."""

    steps: tuple[PlayedStep, ...]
    score: int
    """Highest score reached."""
    walkthrough_score: int
    """Highest score of the walkthrough as it is written."""
    max_score: int
    won: bool

    @property
    def misses(self) -> tuple[PlayedStep, ...]:
        """The steps that change the world and are not offered, or cannot work any more."""
        return tuple(step for step in self.steps if step.kind)

    @property
    def replaced(self) -> int:
        """Number of steps for which several other actions were played."""
        return sum(len(step.played) > 1 for step in self.steps)

    @property
    def kinds(self) -> dict[str, int]:
        """How many misses there are of each kind, most first."""
        return dict(Counter(step.kind for step in self.misses).most_common())

    @property
    def mean_actions(self) -> float:
        """Mean number of offered actions."""
        counts = [step.actions for step in self.steps if step.actions] or [0]
        return sum(counts) / len(counts)


def classify_miss(command: str, is_chance: bool, texts: Sequence[str]) -> str:
    """The kind of a step that is not offered, from its wording, from whether it draws random numbers, and from
    `texts`, what can be read at that step."""
    text = command.lower().strip()
    words = re.findall(r"[a-z0-9'-]+", text)
    if re.match(r"^[a-z -]+,", text):
        return "order to a person"
    kinds = (
        ("time passes", text in _PASSING_TIME),
        ("spoken words", bool(_SPEECH.search(text))),
        ("topic", bool(_TOPIC.search(text))),
        ("number", bool(_NUMBER.search(text))),
        ("list", bool(_LIST.search(text))),
        ("single word", len(words) == 1),
        ("chance", is_chance),
    )
    found = next((kind for kind, holds in kinds if holds), "")
    if found:
        return found
    seen = " ".join(texts).lower()
    return "thing in sight" if words[-1][:6] in seen else "thing that no text names"


def play_reach(game: StoryGame, limit: int = 0) -> Iterator[PlayedStep]:
    """The steps of the walkthrough as they can be played, one after the other; `limit` ends after so many, if not 0.

    Random numbers are those that the walkthrough itself meets at each step, so that a step that was left out does not
    change what chance decides later. A step that is not offered is replaced by what leaves the rest of the walkthrough
    the most points. Steps that only let time pass are left out where no offered action does that; for two of them in a
    row, two offered actions are played of which the second undoes the first, where there are such.
    """
    emulator, player = game.emulator, Player(game)
    script = Script(emulator, limit)
    emulator.restore(script.states[0])
    here, to_come = player.read_present(), script.best
    idle = 0
    """Steps before this one that only let time pass and were left out."""
    for number in range(1, len(script.states) + 1):
        command = script.commands[number - 1]
        at = script.states[number - 1]
        works = player.has_effect(at, command)
        state = msgspec.structs.replace(here.state, rng=at.rng)
        here = Outcome(state, here.key, here.world, here.score, here.over, here.won)
        offered = player.list_offered(state)
        choice = _Choice((command.lower(),), "", to_come)
        if command.lower() not in offered:
            played, kind = _choose(game, player, here, command, offered, works)
            choice = _find_best_choice(player, script, number, here, offered, _Choice(played, kind, to_come))
            idle = 0 if choice.played or choice.kind else idle + 1
            if idle == 2:
                idle, both = 0, player.find_round_trip(here, offered)
                there = _play_rest(player, script, number, here, _Choice(both, "", 0))
                choice = there if both and there.to_come >= choice.to_come else choice
        else:
            idle = 0
        emulator.restore(state)
        room = emulator.tree.names[emulator.tree.find_room(emulator.ram, emulator.player)]
        for action in choice.played:
            after = player.try_command(here.state, action)
            assert after is not None  # it was tried from the same state before
            here = after
        if choice.renamed is not None:
            script.commands[number:] = replace_word(script.commands[number:], choice.renamed)
        lost, to_come = max(0, to_come - choice.to_come), choice.to_come
        yield PlayedStep(number, command, room, choice.played, choice.kind, len(offered), here.score, here.won, lost)
        if here.over:
            return


@dataclass(frozen=True)
class _Choice:
    """What may be played for a step."""

    played: tuple[str, ...]
    kind: str
    to_come: int
    """The most points that the walkthrough has at any time if it goes on from there as it is written."""
    renamed: tuple[str, str] | None = None
    """A word of the later steps, and the word that stands for it from now on: the player made up another name."""


def _play_rest(player: Player, script: Script, number: int, here: Outcome, choice: _Choice) -> _Choice:
    """The choice with the most points from here on if it is played and then the walkthrough behind a step as it is
    written, with its own random numbers; -1 if it cannot be played."""
    best, place = here.score, here
    for i, action in enumerate(choice.played):
        after = (
            player.try_command(place.state, action) if i == 0 or action in player.list_offered(place.state) else None
        )
        if after is None:
            return replace(choice, to_come=-1)
        best, place = max(best, after.score), after
        if after.over:
            return replace(choice, to_come=best)
    return replace(choice, to_come=max(best, player.play_rest(place.state, script, number, choice.renamed)))


def _find_best_choice(
    player: Player,
    script: Script,
    number: int,
    here: Outcome,
    offered: Sequence[str],
    first: _Choice,
) -> _Choice:
    """What leaves the rest of the walkthrough as many points as the step itself would (`first.to_come`), or the most:
    the first choice, the same with another name, in another order or with some waiting, offered actions that lead to
    the same world, any offered action, those first that leave memory most like the step, or nothing at all."""
    wanted, command = first.to_come, script.commands[number - 1].lower()
    best = _play_rest(player, script, number, here, first)
    goal = player.try_command(here.state, command)
    if best.to_come >= wanted or goal is None:
        return best
    others = [_Choice((action,), "", 0, new) for action in offered if (new := _find_new_name(command, action))]
    parts = _split_command(command)
    if len(parts) > 1:
        in_parts = player.follow(here, parts)
        others += [_Choice(played, "", 0) for played in (in_parts, *_list_variants(in_parts, "wait" in offered))]
    others += [_Choice(played, "", 0) for played in _list_variants(first.played, "wait" in offered)]
    if len(first.played) == 1:
        others.append(_Choice(player.find_replacements(here, goal, offered, MAX_REPLACEMENTS) or (), "", 0))
    reached = [(a, after) for a in offered if (after := player.try_command(here.state, a)) is not None]
    reached.sort(key=lambda one: one[1].measure_memory_distance(goal))
    others += [_Choice((), "", 0), *(_Choice((action,), "", 0) for action, _ in reached)]
    for other in chain(others, _try_two_steps(player, reached, goal)):
        choice = _play_rest(player, script, number, here, other)
        if choice.to_come > best.to_come:
            best = choice
        if choice.to_come >= wanted:
            return choice
    return replace(best, kind=first.kind or classify_miss(command, False, player.read_texts(here.state)))


def _split_command(command: str) -> list[str]:
    """The commands that a list stands for: `give bag, coin and map to troll`, `remove hat and drop it`."""
    match = re.match(r"(\w+) (.+?)(| (?:to|in|into|on|onto|from|under|with) .+)$", command)
    if match is None:
        return [command]
    verb, things, rest = match.groups()
    several = [part for part in re.split(r" *, *and +| *, *| +and +| +then +|\. *", things) if part]
    verbs = [part.split()[0] for part in several]
    return [
        f"{verb} {part}{rest}" if i == 0 or verbs[i] not in _SECOND_VERBS else f"{part}{rest}"
        for i, part in enumerate(several)
    ]


def _try_two_steps(player: Player, reached: Sequence[tuple[str, Outcome]], goal: Outcome) -> Iterator[_Choice]:
    """Two actions in a row that leave memory much like a step: the nearest ones, and what is nearest after them."""
    for action, place in reached[:_MAX_FIRST]:
        if place.over:
            continue
        there = [
            (a, after)
            for a in player.list_offered(place.state)
            if (after := player.try_command(place.state, a)) is not None
        ]
        there.sort(key=lambda one: one[1].measure_memory_distance(goal))
        yield from (_Choice((action, other), "", 0) for other, _ in there[:_MAX_SECOND])


def _find_new_name(command: str, action: str) -> tuple[str, str] | None:
    """The word of a command for which an action has another one, before the same preposition: `write ash on cube`
    gives the cube a name as well as `write oak on cube`."""
    one, other = command.split(), action.split()
    if len(one) < 4 or len(other) < 4 or one[1] == other[1] or (one[0], one[2]) != (other[0], other[2]):
        return None
    return (one[1], other[1]) if one[-1][:6] in action or other[-1] in command else None


def _list_variants(played: Sequence[str], can_wait: bool) -> list[tuple[str, ...]]:
    """Several actions in other orders, and with some turns of waiting: chance may be kinder then."""
    if len(played) < 2:
        return []
    found = list(islice(permutations(played), 1, _MAX_ORDERS))
    waits = [("wait",) * turns for turns in range(1, _MAX_WAITS + 1)] if can_wait else []
    return [*found, *((*wait, *played) for wait in waits), *((*played, *wait) for wait in waits)]


def _choose(
    game: StoryGame, player: Player, here: Outcome, command: str, offered: Sequence[str], works: bool
) -> tuple[tuple[str, ...], str]:
    """The offered actions to be played for a step, and the kind of miss if there are none although it does
    something. `works`: whether it changes the world in the walkthrough."""
    emulator = game.emulator
    if command.lower() in offered:
        return (command.lower(),), ""
    wanted = player.try_command(here.state, command)
    if wanted is None:
        return (), ""
    emulator.restore(here.state)
    verdicts = emulator.filter([command, "look", *offered], watched=game.world.select_watched_bits(emulator.ram))
    flag, watch = int(verdicts.flags[0]), int(verdicts.watches[0])
    changes = bool(flag & Verdict.CHANGED)
    if works and not (changes or flag & Verdict.EVENT or watch) and wanted.is_same(here):
        # It cannot do here what it does in the walkthrough: there is nothing that some other action could do instead,
        # but for letting time pass.
        idle = (action for action in _IDLE if action in offered)
        return next(((a,) for a in idle if _can_reach(player, here, a, wanted)), ()), FOLLOWS
    same = _find_alike(verdicts, offered)
    reached = [(action, after) for action in offered if (after := player.try_command(here.state, action)) is not None]
    fit = [(a, after) for a, after in reached if after.score == wanted.score and (a in same or after.is_same(wanted))]
    if fit:
        # Of several, the one that leaves memory most alike: it does more of the same beyond what the key knows.
        return (min(fit, key=lambda one: (one[1].measure_memory_distance(wanted), one[0] != "wait"))[0],), ""
    if changes:
        # What tells the two worlds apart may be what the parser keeps: then all is the same afterwards.
        near = [
            (a, after)
            for a, after in reached
            if a in _find_same_tree(verdicts, offered) and (after.score, after.over) == (wanted.score, wanted.over)
        ]
        # The one that names the same things first: what a person was told may show much later.
        near.sort(key=lambda one: (-_count_shared_words(one[0], command), one[1].measure_memory_distance(wanted)))
        if (
            near
            and not wanted.over
            and (_has_all_words(near[0][0], command) or _has_same_findings(game, near[0][1], wanted))
        ):
            return (near[0][0],), ""
    # As in coverage.py: the object tree was touched and is as before, but something else changed.
    hidden = bool(flag & Verdict.EVENT) and watch not in (0, int(verdicts.watches[1]))
    max_actions = MAX_FOR_ALL if "all" in command.lower().split() else MAX_REPLACEMENTS
    found = (
        player.find_replacements(here, wanted, offered, max_actions) if changes or not wanted.is_same(here) else None
    )
    if found or not (changes or hidden or wanted.score != here.score):
        return found or (), ""
    return (), classify_miss(command, bool(flag & Verdict.RANDOM), player.read_texts(here.state))


def _count_shared_words(one: str, other: str) -> int:
    """How many words two commands have in common, as far as short dictionaries tell them apart."""
    first, second = ({word[:6] for word in command.lower().split()[1:]} for command in (one, other))
    return len(first & second)


def _has_all_words(action: str, command: str) -> bool:
    """Whether an action has all the words of a command but the verb, as `answer yellow to jemima` has those of `say
    yellow`."""
    words = {word[:6] for word in command.lower().split()[1:]}
    return bool(words) and _count_shared_words(action, command) == len(words)


def _find_same_tree(verdicts: Verdicts, offered: Sequence[str]) -> list[str]:
    """The offered actions that change the same as the command in the object tree. `verdicts` as in `_find_alike`."""
    flags, diffs = verdicts.flags & Verdict.CHANGED, verdicts.diffs
    alike = (diffs[2:] == diffs[0]) & (flags[2:] == flags[0])
    return [offered[i] for i in np.flatnonzero(alike).tolist()]


def _has_same_findings(game: StoryGame, one: Outcome, other: Outcome) -> bool:
    """Whether `look`, `inventory` and valid actions are the same in two worlds."""
    return game.find_in_state(one.state) == game.find_in_state(other.state)


def _can_reach(player: Player, here: Outcome, action: str, wanted: Outcome) -> bool:
    """Return whether an action leads to the wanted world."""
    after = player.try_command(here.state, action)
    return after is not None and after.is_same(wanted)


def _find_alike(verdicts: Verdicts, offered: Sequence[str]) -> list[str]:
    """The offered actions that change the same as the command, in the object tree and beyond. `verdicts` are on the
    command, on `look`, and on the offered actions."""
    changed, diffs, watches = verdicts.flags & Verdict.CHANGED, verdicts.diffs, verdicts.watches
    if not changed[0] and not watches[0]:
        return []
    alike = (diffs[2:] == diffs[0]) & (changed[2:] == changed[0]) & (watches[2:] == watches[0])
    return [offered[i] for i in np.flatnonzero(alike).tolist()]


def measure_reach(game: StoryGame, steps: Sequence[PlayedStep], limit: int = 0) -> Reach:
    """The steps that were played beside what the walkthrough comes to as it is written."""
    emulator = game.emulator
    best = Script(emulator, limit).best
    score = max((step.score for step in steps), default=0)
    return Reach(tuple(steps), score, best, emulator.bindings.max_score, any(step.won for step in steps))
