"""A story as a `Game`: emulator, canonical states, search and atlas put together."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import msgspec

from xtx.core import Observation, Step, UserError
from xtx.games.actions.search import RANDOM_STATES, Findings, Search
from xtx.games.atlas.store import Atlas
from xtx.games.canonical.canonical_state import Layout, World
from xtx.games.canonical.survey_budget import Progress
from xtx.games.catalog.known_games import find_extra_actions, find_story
from xtx.games.catalog.profile import Profile
from xtx.games.discovery.isolated_discovery import describe_story
from xtx.games.emulator.frotz import Emulator, Snapshot, Status, Trace
from xtx.games.emulator.printed_text import clean
from xtx.games.emulator.scene_details import Details, Facts, read_details, read_facts
from xtx.games.known_layouts import find_layout, make_story_key, make_version
from xtx.games.state_findings import StateFindings
from xtx.games.zset.engine import Engine

NO_ANSWER = "The game does not answer to that."
"""The narration after an action that hangs or crashes the emulator: nothing happens, but the step counts."""

_CHECKSUM = 16


@dataclass(frozen=True)
class GameSpec:
    """Which game is played, and how: plain data that can be sent to another process."""

    path: str
    """The story file."""
    extra_actions: bool = False
    """Also try the actions that the paper adds to the game's grammar."""
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
    return _make_checksum(md5, saved) + saved


def _make_checksum(md5: str, saved: bytes) -> bytes:
    """Stands before a saved state, to tell one that is damaged or another story's. It protects nothing, since the key
    is no secret: `Emulator.restore` checks whatever it is given."""
    return hashlib.blake2b(saved, digest_size=_CHECKSUM, key=md5.encode()).digest()


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
        extra = find_extra_actions(self.emulator.bindings.name) if spec.extra_actions else ()
        world = self.world if spec.search else None
        whole = spec.actions == "whole"
        self.search = Search(self.emulator, extra, self._engine, world, whole, usual_verbs=spec.usual_verbs)
        known_as = f"{make_story_key(story)};{make_version(story, spec.thorough_survey)}"
        self.states = StateFindings(self.emulator, self.search, self._atlas, World.compute_key, known_as)
        """What is known of the story's states."""
        self._seed = self.emulator.bindings.walkthrough_seed
        self._step = 0
        self._here = b""
        """Key of the present state."""
        self._canonical: Snapshot | None = None
        """The present state made canonical, where there is such a thing."""

    @cached_property
    def layout(self) -> Layout:
        """Which parts of the story's memory make up the world."""
        layout, avoid = self._survey
        return layout or find_layout(self.emulator, self._atlas, self.spec.thorough_survey, avoid, self._on_progress)

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
        return replace(step, observation=replace(step.observation, actions=self.find_valid_actions()))

    def move(self, action: str, *, last: bool = False) -> Step:
        """`step` without what takes long: the observation has no valid actions yet."""
        emulator = self.emulator
        before, score = emulator.save(), self._limit_score(emulator.last_score)
        self._step += 1
        known = action in self.states.forbidden.get(self._here, ())
        status = Status.LIMIT if known else emulator.step(action)
        if status in (Status.LIMIT, Status.CRASHED):
            if not known:
                emulator.restore(before)
                self.states.forbid(self._here, action)
                self.states.newly_forbidden.append((self._here, action))
            return Step(self._glimpse(NO_ANSWER), 0, False, last)
        halted = status is Status.HALTED
        reward = 0 if halted else self._read_score() - score
        if halted or emulator.over:
            ending = Observation(clean(emulator.narration), "", "", (), score + reward, self._step)
            return Step(ending, reward, True, False, not halted and emulator.won)
        return Step(self._glimpse(), reward, False, last)

    def look_ahead(self, action: str) -> None:
        """Finds out what can be done where an action leads, and stays where it is: going there is quicker then, and
        everything else as before."""
        emulator = self.emulator
        before, kept = emulator.save(), (self._here, self._canonical, self.states.described)
        if action not in self.states.forbidden.get(self._here, ()) and emulator.step(action) is Status.DONE:
            canonical = None if emulator.over else self._locate()
            if canonical is not None:
                self.states.find(self._here, canonical)
        emulator.restore(before)
        self._here, self._canonical, self.states.described = kept

    def save(self) -> bytes:
        """The state of the game, for `restore`."""
        return encode_saved_game(self.emulator.story.md5, self.emulator.save(), self._seed, self._step)

    def restore(self, state: bytes) -> Observation:
        """The observation in the saved state."""
        self._load(state)
        return self._observe()

    def _load(self, state: bytes) -> None:
        if _make_checksum(self.emulator.story.md5, state[_CHECKSUM:]) != state[:_CHECKSUM]:
            raise UserError("this is not a saved game of this story, or it is damaged")
        try:
            saved = msgspec.msgpack.decode(state[_CHECKSUM:], type=_Saved)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise UserError("this saved game was written by another version of xtx, or it is damaged") from None
        self.emulator.restore_foreign(saved.emulator)
        self._seed, self._step = saved.seed, saved.step

    def rebuild(self, base: int | bytes, actions: Iterable[str | None]) -> None:
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
            excluded = self.states.select_excluded(self._here, canonical)
            found = self.search.findings(canonical, excluded)
            if self.search.extends:
                self.search.extended(canonical, found, excluded)
        elif canonical is not None:
            emulator.read_responses(canonical, [command])
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
        return replace(self._glimpse(), actions=self.find_valid_actions())

    def _glimpse(self, text: str | None = None) -> Observation:
        """The present state without its valid actions."""
        emulator = self.emulator
        narration = clean(emulator.narration) if text is None else text
        self._canonical = None if emulator.over else self._locate()
        look, inventory = ("", "") if self._canonical is None else self.states.describe(self._here, self._canonical)
        return Observation(narration, look, inventory, (), self._read_score(), self._step)

    def _read_score(self) -> int:
        return self._limit_score(self.emulator.score)

    def _limit_score(self, score: int) -> int:
        """A score as agents see it."""
        return (score + 128) % 256 - 128 if self.spec.byte_score else score

    def find_valid_actions(self) -> tuple[str, ...]:
        """Return the valid actions of the present state; none at the end of a game."""
        if self._canonical is None:
            return ()
        return self.states.select_allowed(self._here, self.states.find(self._here, self._canonical))

    def find_in_state(self, state: Snapshot) -> Findings:
        """Look, inventory and valid actions in a state of the emulator, which is left there; nothing at the end of a
        game. The game itself stays where it is only if that state is restored afterwards."""
        self.emulator.restore(state)
        canonical = None if self.emulator.over else self._locate()
        if canonical is None:
            return Findings("", "", ())
        found = self.states.find(self._here, canonical)
        return msgspec.structs.replace(found, actions=self.states.select_allowed(self._here, found))

    def find_known_actions(self) -> tuple[str, ...] | None:
        """Return the valid actions of the present state if they need not be searched, else None."""
        if self._canonical is None:
            return ()
        found = self.states.recall(self._here)
        return None if found is None else self.states.select_allowed(self._here, found)

    def _locate(self) -> Snapshot | None:
        """Finds the key of the present state; gives the canonical state where there is one."""
        if not self.spec.search:
            # No layout, so no canonical state: the whole state is the key, which serves for what is forbidden.
            # But the printed score, which is read after the key is made.
            *state, _ = msgspec.structs.astuple(self.emulator.save())
            self._here = hashlib.blake2b(msgspec.msgpack.encode(state), digest_size=16).digest()
            return None
        canonical = self.world.make_canonical(RANDOM_STATES[0])
        self._here = self.states.make_key(canonical)
        return canonical

    # --- for workers: see `HostedGame` --------------------------------------------------------------------------

    @property
    def here(self) -> bytes:
        """The key of the present state of the world."""
        return self._here
