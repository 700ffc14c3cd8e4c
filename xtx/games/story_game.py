"""A story as a `Game`: emulator, canonical states, search and atlas put together."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec

from xtx.core import FALLBACK_ACTIONS, Observation, Step, UserError
from xtx.games.actions.search import RANDOM_STATES, Findings, Search
from xtx.games.atlas.bundled import shipped_findings
from xtx.games.atlas.store import DEADLY, UNPROVEN, Atlas
from xtx.games.canonical.canonical_state import CANONICAL_VERSION, ELSEWHERE, SURVEY_VERSION, Layout, World
from xtx.games.canonical.shipped_layouts import read_shipped_layout
from xtx.games.canonical.survey import ONLY_WALKED, read_layout
from xtx.games.canonical.survey_budget import QUICK, THOROUGH, Budget, Progress
from xtx.games.catalog.known_games import extra_actions, find_story
from xtx.games.catalog.profile import Profile
from xtx.games.catalog.profile_format import profile_key
from xtx.games.catalog.story_file import Story
from xtx.games.emulator.frotz import Emulator, Snapshot, Status, Trace
from xtx.games.emulator.printed_text import clean
from xtx.games.emulator.scene_details import Details, Facts, read_details, read_facts
from xtx.games.isolated_discovery import describe_story
from xtx.games.zset.engine import Engine

NO_ANSWER = "The game does not answer to that."
"""The narration after an action that hangs or crashes the emulator: nothing happens, but the step counts."""

_REMEMBERED = 20_000
_CHECKSUM = 16


@dataclass(frozen=True)
class GameSpec:
    """Which game is played, and how: plain data that can be sent to another process."""

    path: str
    """The story file."""
    extra_actions: bool = False
    """Also try the actions that the paper adds to the game's grammar."""
    wide_grammar: bool = False
    """Also try forms beyond the grammar's templates: object and direction, numbers, orders, all but."""
    atlas: str | None = None
    """Folder of the atlas; None keeps what is found in memory only."""
    thorough_survey: bool = False
    """Spend minutes on the survey of the story, so that more states share what was found about them."""
    search: bool = True
    """Find look, inventory and valid actions. Without it observations have none of them, and a game starts and
    steps at once: for people at the keyboard, and for agents that know what to do."""
    engine: str = "zset"
    """How candidates are judged: `zset` (set execution, all at once) or `jericho` (one by one in Frotz, which then runs
    altered memory: for comparisons)."""
    threads: int = 1
    """Threads that judge candidates; the same verdicts again."""
    actions: str = "templates"
    """What is tried for valid actions: `templates` (the grammar's templates with the things in sight) or `whole` (every
    word of the dictionary as well)."""
    usual_verbs: bool = False
    """Name each change by the command with the most usual verb, as Jericho does, and not by the shortest."""
    details: bool = False
    """Also give what people see of a state: see `details.Details`. It does not change what an agent sees."""
    byte_score: bool = False
    """Give the score as one signed byte: -130 as 126. So old versions of Jericho read Dragon's."""


class _Saved(msgspec.Struct, frozen=True, array_like=True):
    """A game's state as `save` gives it: the emulator's, and what we keep beside it."""

    emulator: Snapshot
    seed: int
    step: int


def encode_saved_game(md5: str, state: Snapshot, seed: int, step: int) -> bytes:
    """A saved game of the story with that md5, for `StoryGame.restore`."""
    saved = msgspec.msgpack.encode(_Saved(state, seed, step))
    return _checksum(md5, saved) + saved


def _checksum(md5: str, saved: bytes) -> bytes:
    """Stands before a saved state, to tell one that is damaged or another story's. It protects nothing, since the key
    is no secret: `Emulator.restore` checks whatever it is given."""
    return hashlib.blake2b(saved, digest_size=_CHECKSUM, key=md5.encode()).digest()


_Kind = TypeVar("_Kind")


def _decode(stored: bytes | None, kind: type[_Kind]) -> _Kind | None:
    """An entry of the atlas; None if there is none, or if it is not of this kind. An atlas may have been taken in from
    elsewhere, so a right checksum says nothing about what an entry holds."""
    if not stored:
        return None
    try:
        found = msgspec.msgpack.decode(stored, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if isinstance(found, Findings) and not found.actions else found


def _fits(layout: Layout, size: int) -> bool:
    """Whether all that a layout speaks of lies within so many bytes of RAM."""
    addresses = [*layout.counters, *layout.idle, *layout.stamped, *(address for _, address, _ in layout.folds)]
    addresses += [
        address for local in (layout.local, layout.unchecked) for bytes_ in local.values() for address in bytes_
    ]
    addresses += [address for together in layout.due for address, _ in together]
    whole = all(len(table) == 256 for _, _, table in layout.folds) and all(layout.due)
    whole &= all(0 <= value < 256 for together in layout.due for _, value in together)
    return len(layout.mask) == len(layout.fill) == size and whole and all(0 <= a < size for a in addresses)


def _without(actions: tuple[str, ...], unwanted: Collection[str]) -> tuple[str, ...]:
    """The actions that are left; never none, because an agent must be able to answer."""
    left = tuple(a for a in actions if a not in unwanted)
    return left or tuple(a for a in FALLBACK_ACTIONS if a not in unwanted) or FALLBACK_ACTIONS


class StoryGame:
    """One game in this process. A hang inside one instruction still stops the process: see worker_pool.py."""

    def __init__(
        self,
        spec: GameSpec,
        layout: Layout | None = None,
        trace: Trace | None = None,
        avoid: Collection[str] = (),
        on_progress: Progress | None = None,
        profile: Profile | None = None,
    ) -> None:
        """`layout`, `profile`: what another process found out about the story; `trace`: where to note what is tried
        next; `avoid`: commands that killed a process in the survey; `on_progress`: is told how far survey and discovery
        have come."""
        self.spec = spec
        self._on_progress = on_progress
        story = find_story(str(Path(spec.path).absolute()))
        if spec.search:
            story = replace(story, profile=profile) if profile is not None else describe_story(story, on_progress)
        self.emulator = Emulator(story, trace)
        self._atlas = Atlas(Path(spec.atlas)) if spec.atlas else None
        self._survey = layout, avoid
        if spec.search:
            _ = self.layout  # now, and not in the middle of a game
        self._engine = Engine.of(self.emulator, spec.threads) if spec.search and spec.engine == "zset" else None
        extra = extra_actions(self.emulator.name) if spec.extra_actions else ()
        world = self.world if spec.search else None
        whole = spec.actions == "whole"
        self.search = Search(
            self.emulator, extra, spec.wide_grammar, self._engine, world, whole, usual_verbs=spec.usual_verbs
        )
        known_as = f"{_story_key(story)};{_version(story, spec.thorough_survey)}"
        self._prefix = f"{known_as};{self.search.variant};".encode()
        self._plain_prefix = f"{known_as};{self.search.plain_variant};".encode()
        self._remembered: dict[bytes, Findings] = {}
        self._seed = self.emulator.walkthrough_seed
        self._step = 0
        self._here = b""
        """Key of the present state."""
        self._canonical: Snapshot | None = None
        """The present state made canonical, where there is such a thing."""
        self._described: tuple[bytes, str, str] = b"", "", ""
        """Look and inventory in a state that is still to be searched, behind its key."""
        self.forbidden: dict[bytes, frozenset[str]] = {}
        """Actions that the emulator cannot finish, by the key of the state in which it cannot."""
        self._killers: dict[bytes, frozenset[str]] = {}
        """Those of them that end the whole process."""
        self.search_seconds = 0.0
        """Time spent on searches so far."""
        self.searches = 0
        self.newly_forbidden: list[tuple[bytes, str]] = []
        """Those found since somebody emptied this list."""
        self.avoid: frozenset[str] = frozenset()
        """Candidates that killed an earlier process in the next state to be searched: left out there, for good."""
        self.unproven: frozenset[str] = frozenset()
        """Those of them that killed no process that tried them alone: later runs do not leave them out."""

    @cached_property
    def layout(self) -> Layout:
        """Which parts of the story's memory make up the world."""
        layout, avoid = self._survey
        return layout or self._find_layout(avoid)

    @cached_property
    def world(self) -> World:
        """Canonical states and keys."""
        return World(self.emulator, self.layout, self._engine)

    # --- Game ---------------------------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> Observation:
        """The first observation of a new game under an emulator seed; None repeats the last one."""
        self._seed = self._seed if seed is None else seed
        self._step = 0
        self.emulator.reset(self._seed)
        return self._observe()

    def step(self, action: str, *, last: bool = False) -> Step:
        """What the action leads to. One that the emulator cannot finish leads nowhere and is not offered again."""
        step = self.move(action, last=last)
        if step.terminated:
            return step
        return replace(step, observation=replace(step.observation, actions=self.valid_actions()))

    def move(self, action: str, *, last: bool = False) -> Step:
        """`step` without what takes long: the observation has no valid actions yet."""
        emulator = self.emulator
        before, score = emulator.save(), self._score()
        self._step += 1
        known = action in self.forbidden.get(self._here, ())
        status = Status.LIMIT if known else emulator.step(action)
        if status in (Status.LIMIT, Status.CRASHED):
            if not known:
                emulator.restore(before)
                self.forbid(self._here, action)
                self.newly_forbidden.append((self._here, action))
            return Step(self._glimpse(NO_ANSWER), 0, False, last)
        halted = status is Status.HALTED
        reward = 0 if halted else self._score() - score
        if halted or emulator.over:
            ending = Observation(clean(emulator.narration), "", "", (), score + reward, self._step)
            return Step(ending, reward, True, False, not halted and emulator.won)
        return Step(self._glimpse(), reward, False, last)

    def look_ahead(self, action: str) -> None:
        """Finds out what can be done where an action leads, and stays where it is: going there is quicker then, and
        everything else as before."""
        emulator = self.emulator
        before, kept = emulator.save(), (self._here, self._canonical, self._described)
        if action not in self.forbidden.get(self._here, ()) and emulator.step(action) is Status.DONE:
            canonical = None if emulator.over else self._locate()
            if canonical is not None:
                self._findings(self._here, canonical)
        emulator.restore(before)
        self._here, self._canonical, self._described = kept

    def save(self) -> bytes:
        """The state of the game, for `restore`."""
        return encode_saved_game(self.emulator.story.md5, self.emulator.save(), self._seed, self._step)

    def restore(self, state: bytes) -> Observation:
        """The observation in the saved state."""
        self._load(state)
        return self._observe()

    def _load(self, state: bytes) -> None:
        if _checksum(self.emulator.story.md5, state[_CHECKSUM:]) != state[:_CHECKSUM]:
            raise UserError("this is not a saved game of this story, or it is damaged")
        try:
            saved = msgspec.msgpack.decode(state[_CHECKSUM:], type=_Saved)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise UserError("this saved game was written by another version of xtx, or it is damaged") from None
        self.emulator.restore_foreign(saved.emulator)
        self._seed, self._step = saved.seed, saved.step

    def bring(self, base: int | bytes, actions: Iterable[str | None]) -> None:
        """Puts the game where another process had it: a new game under a seed, or a saved one, and the actions since
        then, None for each that had no answer. Nothing is searched, so it is quick."""
        if isinstance(base, int):
            self._seed, self._step = base, 0
            self.emulator.reset(base)
        else:
            self._load(base)
        self.emulator.note_printed_score()
        for action in actions:
            self._step += 1
            if action is None:
                continue
            before = self.emulator.save()
            if self.emulator.step(action) in (Status.LIMIT, Status.CRASHED):
                self.emulator.restore(before)
            self.emulator.note_printed_score()
        self._canonical = self._locate()

    def try_alone(self, command: str, *, as_step: bool) -> None:
        """Gives one command that may end this process: as a step from the present state, or as a search tries it, from
        the canonical state. With an engine that means the whole search, of which all commands are one run. The game is
        left in some other state."""
        emulator, canonical = self.emulator, self._canonical
        if as_step:
            emulator.step(command)
        elif canonical is not None and self._engine is not None:
            excluded = self._excluded(self._here, canonical)
            found = self.search.findings(canonical, excluded)
            if self.search.extends:
                self.search.extended(canonical, found, excluded)
        elif canonical is not None:
            emulator.ask(canonical, [command])
            for rng in RANDOM_STATES:
                emulator.restore(msgspec.structs.replace(canonical, rng=rng))
                emulator.filter([command])

    def close(self) -> None:
        """Frees emulator, engine and atlas."""
        if self._engine is not None:
            self._engine.close()
        self.emulator.close()
        if self._atlas is not None:
            self._atlas.close()

    @property
    def details(self) -> Details:
        """What people see of the present state."""
        return read_details(self.emulator)

    @property
    def facts(self) -> Facts:
        """What is true of the story in every state."""
        return read_facts(self.emulator)

    # --- what is known of a state -------------------------------------------------------------------------------

    def _observe(self) -> Observation:
        return replace(self._glimpse(), actions=self.valid_actions())

    def _glimpse(self, text: str | None = None) -> Observation:
        """The present state without its valid actions."""
        emulator = self.emulator
        narration = clean(emulator.narration) if text is None else text
        self._canonical = None if emulator.over else self._locate()
        look, inventory = ("", "") if self._canonical is None else self._describe(self._here, self._canonical)
        return Observation(narration, look, inventory, (), self._score(), self._step)

    def _score(self) -> int:
        """The score as agents see it."""
        score = self.emulator.score
        return (score + 128) % 256 - 128 if self.spec.byte_score else score

    def valid_actions(self) -> tuple[str, ...]:
        """The valid actions of the present state; none at the end of a game."""
        if self._canonical is None:
            return ()
        return self._allowed(self._findings(self._here, self._canonical))

    def findings_in(self, state: Snapshot) -> Findings:
        """Look, inventory and valid actions in a state of the emulator, which is left there; nothing at the end of a
        game. The game itself stays where it is only if that state is restored afterwards."""
        self.emulator.restore(state)
        canonical = None if self.emulator.over else self._locate()
        if canonical is None:
            return Findings("", "", ())
        found = self._findings(self._here, canonical)
        return msgspec.structs.replace(found, actions=self._allowed(found))

    def known_actions(self) -> tuple[str, ...] | None:
        """The same if they need not be searched, else None."""
        if self._canonical is None:
            return ()
        found = self._known(self._here)
        return None if found is None else self._allowed(found)

    def _allowed(self, found: Findings) -> tuple[str, ...]:
        forbidden = self.forbidden.get(self._here)
        return _without(found.actions, forbidden) if forbidden else found.actions

    def _describe(self, key: bytes, canonical: Snapshot) -> tuple[str, str]:
        found = self._known(key)
        if self._atlas is not None:
            self._atlas.count(found is not None)
        if found is not None:
            return found.look, found.inventory
        self._heed(key)
        state = self.emulator.save()
        look, inventory = self.search.describe(canonical, self._excluded(key, canonical))
        self.emulator.restore(state)
        self._described = key, look, inventory
        return look, inventory

    def _locate(self) -> Snapshot | None:
        """Finds the key of the present state; gives the canonical state where there is one."""
        if not self.spec.search:
            # No layout, so no canonical state: the whole state is the key, which serves for what is forbidden.
            # But the printed score, which is read after the key is made.
            *state, _ = msgspec.structs.astuple(self.emulator.save())
            self._here = hashlib.blake2b(msgspec.msgpack.encode(state), digest_size=16).digest()
            return None
        canonical = self.world.canonical(RANDOM_STATES[0])
        self._here = hashlib.blake2b(self._prefix + self.world.key(canonical), digest_size=16).digest()
        return canonical

    def _findings(self, key: bytes, canonical: Snapshot) -> Findings:
        found = self._known(key)
        if found is None:
            found = self._remembered[key] = self._find_out(key, canonical)
        return found

    def _known(self, key: bytes) -> Findings | None:
        """What was found out about a state before; None if it must be searched."""
        found = self._remembered.get(key)
        if found is not None:
            return found
        stored = None if self._atlas is None or self._is_doubtful(key) else self._atlas.get(key)
        if stored is None and not self._deadly(key):
            stored = shipped_findings(self.emulator.story.md5).get(key)
        if len(self._remembered) >= _REMEMBERED:
            self._remembered.clear()
        found = _decode(stored, Findings)
        if found is not None:
            self._remembered[key] = found
        return found

    def _find_out(self, key: bytes, canonical: Snapshot) -> Findings:
        began = time.perf_counter()
        try:
            return self._search_state(key, canonical)
        finally:
            self.search_seconds += time.perf_counter() - began
            self.searches += 1

    def _search_state(self, key: bytes, canonical: Snapshot) -> Findings:
        described, self._described = self._described, (b"", "", "")
        texts = None if self.avoid or described[0] != key else described[1:]
        self._heed(key)
        state = self.emulator.save()
        plain_key = self._plain_key(canonical)
        self._forget_unproven(key, plain_key)
        excluded = self._excluded(key, canonical)
        # What was found without commands that only this run leaves out is nothing for others.
        shared = excluded <= self._proven(key) | self._proven(plain_key)
        if self.search.extends:
            # What the templates give is kept by itself, so that other extensions need not search it again.
            known = _decode(self._atlas.get(plain_key), Findings) if self._atlas is not None else None
            found = known or self.search.findings(canonical, excluded, texts)
            if known is None and shared:
                self._keep(plain_key, found)
            found = self.search.extended(canonical, found, excluded)
        else:
            found = self.search.findings(canonical, excluded, texts)
        self.emulator.restore(state)
        if shared:
            self._keep(key, found)
        return found

    def _plain_key(self, canonical: Snapshot) -> bytes:
        return hashlib.blake2b(self._plain_prefix + self.world.key(canonical), digest_size=16).digest()

    def _heed(self, key: bytes) -> None:
        """From now on what killed an earlier process in this state is never tried here."""
        for action in self.avoid:
            self.forbid_for_good(key, action, share=action not in self.unproven)
            self.newly_forbidden.append((key, action))
        self.avoid = frozenset()

    def _excluded(self, key: bytes, canonical: Snapshot) -> frozenset[str]:
        """Commands that are not to be tried in a state."""
        deadly = self._deadly(key)
        return deadly | self._deadly(self._plain_key(canonical)) if self.search.extends else deadly

    def _keep(self, key: bytes, found: Findings) -> None:
        if self._atlas is not None:
            self._atlas.put(key, msgspec.msgpack.encode(found))

    def _is_doubtful(self, key: bytes) -> bool:
        """Whether an earlier version of xtx left verdicts about a state in the atlas without proof."""
        return self._atlas is not None and self._atlas.get(UNPROVEN + key) is not None

    def _forget_unproven(self, key: bytes, plain_key: bytes) -> None:
        """Forgets what was found out about a state without commands that may be innocent: it is searched now."""
        if self._atlas is not None and (self._is_doubtful(key) or self._is_doubtful(plain_key)):
            gone = [prefix + each for prefix in (b"", UNPROVEN) for each in (key, plain_key)]
            self._atlas.update(lambda known: dict.fromkeys(gone))

    # --- what must not be tried again ---------------------------------------------------------------------------

    @property
    def here(self) -> bytes:
        """The key of the present state of the world."""
        return self._here

    def forbid(self, key: bytes, action: str) -> None:
        """From now on this game does not offer the action in that state."""
        self.forbidden[key] = self.forbidden.get(key, frozenset()) | {action}

    def forbid_for_good(self, key: bytes, action: str, *, share: bool = True) -> None:
        """The same, and no search tries it there any more; `share`: for all later runs with this atlas too, which is
        for what was seen to end a process of its own."""
        self.forbid(key, action)
        self._killers[key] = self._killers.get(key, frozenset()) | {action}
        self._remembered.pop(key, None)
        if self._atlas is None or not share:
            return
        deadly = self._proven(key) | {action}
        self._atlas.put(DEADLY + key, msgspec.msgpack.encode(sorted(deadly)))
        found = _decode(self._atlas.get(key), Findings)
        if found is not None:
            actions = _without(found.actions, deadly)
            self._keep(key, msgspec.structs.replace(found, actions=actions))

    def _deadly(self, key: bytes) -> frozenset[str]:
        """Commands that are never to be tried in a state, not even in a search."""
        return self._killers.get(key, frozenset()) | self._proven(key)

    def _proven(self, key: bytes) -> frozenset[str]:
        """Those of them that the atlas knows."""
        stored = _decode(self._atlas.get(DEADLY + key), list[str]) if self._atlas is not None else None
        return frozenset(stored or ())

    def _find_layout(self, avoid: Collection[str]) -> Layout:
        layout = known_layout(self.emulator, self._atlas, self.spec.thorough_survey)
        if layout is None:
            budget = Budget(THOROUGH if self.spec.thorough_survey else QUICK, self._on_progress)
            layout = read_layout(self.emulator, avoid, budget)
            if self._atlas is not None and not avoid and ONLY_WALKED not in layout.cut_short:
                key = _layout_key(self.emulator.story, self.spec.thorough_survey)
                self._atlas.put(key, msgspec.msgpack.encode(layout))
        return layout


def known_layout(emulator: Emulator, atlas: Atlas | None, thorough: bool = False) -> Layout | None:
    """The layout that comes with xtx, or that an earlier survey left in the atlas; None if there is none."""
    shipped = None if thorough else read_shipped_layout(emulator)
    if shipped is not None or atlas is None:
        return shipped
    stored = _decode(atlas.get(_layout_key(emulator.story, thorough)), Layout)
    if stored is None or not _fits(stored, len(emulator.ram)):
        return None
    # An earlier survey said nothing of rooms off the walkthrough.
    is_whole = not stored.unchecked or ELSEWHERE in stored.unchecked
    return stored if is_whole else None


def _layout_key(story: Story, thorough: bool) -> bytes:
    return hashlib.blake2b(f"layout;{_version(story, thorough)};{_story_key(story)}".encode(), digest_size=16).digest()


def _story_key(story: Story) -> str:
    """The story's part of every key in the atlas: its md5 and, where there is one, its profile, which says what belongs
    to the world and what can be typed."""
    if story.profile is None:
        return story.md5
    return f"{story.md5}+{hashlib.blake2b(profile_key(story.profile), digest_size=16).hexdigest()}"


def _version(story: Story, thorough: bool) -> str:
    """Of the survey, or of canonical states alone where a profile says what the survey would find out: what is shipped
    of the embedded adventure stays true when only the survey changes."""
    if story.profile is not None and story.profile.volatile:
        return str(CANONICAL_VERSION)
    return f"{SURVEY_VERSION}, thorough" if thorough else str(SURVEY_VERSION)
