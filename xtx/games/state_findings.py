"""What is known of a story's states, by key: look, inventory, valid actions, and actions that are forbidden there.

A state that is not known is searched. What is found is kept in memory, and in the atlas if there is one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection
from typing import TypeVar

import msgspec

from xtx.core import FALLBACK_ACTIONS
from xtx.games.action_verdicts import ActionVerdicts
from xtx.games.actions.search import Findings, Search
from xtx.games.atlas.bundled import read_shipped_findings
from xtx.games.atlas.store import DEADLY, UNPROVEN, Atlas
from xtx.games.emulator.frotz import Emulator, Snapshot

_MAX_CACHED_STATES = 20_000
"""Most states with findings in memory; with more the cache is cleared."""

_Kind = TypeVar("_Kind")


def decode_entry(stored: bytes | None, kind: type[_Kind]) -> _Kind | None:
    """Return an entry of the atlas; None if there is none, or if it is not of this kind. An atlas may come from
    elsewhere, so a right checksum says nothing about what an entry holds."""
    if not stored:
        return None
    try:
        found = msgspec.msgpack.decode(stored, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if isinstance(found, Findings) and not found.actions else found


class StateFindings(ActionVerdicts):
    """Finds out and keeps what is known of the states of one story."""

    def __init__(
        self,
        emulator: Emulator,
        search: Search,
        atlas: Atlas | None,
        make_key: Callable[[Snapshot], bytes],
        known_as: str,
    ) -> None:
        """make_key: `World.compute_key`. known_as: the story's part of every key."""
        super().__init__()
        self._emulator = emulator
        self._search = search
        self._atlas = atlas
        self._make_world_key = make_key
        self._prefix = f"{known_as};{search.variant};".encode()
        self._plain_prefix = f"{known_as};{search.plain_variant};".encode()
        self._cached: dict[bytes, Findings] = {}
        self._deadly: dict[bytes, frozenset[str]] = {}
        """Forbidden actions that end the whole process, by key."""
        self.described: tuple[bytes, str, str] = b"", "", ""
        """Look and inventory in a state that is still to be searched, behind its key."""

    def make_key(self, canonical: Snapshot) -> bytes:
        """Return the key of a canonical state in memory and atlas."""
        return hashlib.blake2b(self._prefix + self._make_world_key(canonical), digest_size=16).digest()

    # --- look, inventory, valid actions -------------------------------------------------------------------------

    def describe(self, key: bytes, canonical: Snapshot) -> tuple[str, str]:
        """Return look and inventory in a state."""
        found = self.recall(key)
        if self._atlas is not None:
            self._atlas.count(found is not None)
        if found is not None:
            return found.look, found.inventory
        self._forbid_avoided(key)
        state = self._emulator.save()
        look, inventory = self._search.describe(canonical, self.select_excluded(key, canonical))
        self._emulator.restore(state)
        self.described = key, look, inventory
        return look, inventory

    def find(self, key: bytes, canonical: Snapshot) -> Findings:
        """Return what is known of a state, searched if it must be."""
        found = self.recall(key)
        if found is None:
            found = self._cached[key] = self._search_timed(key, canonical)
        return found

    def recall(self, key: bytes) -> Findings | None:
        """Return what was found out about a state before; None if it must be searched."""
        found = self._cached.get(key)
        if found is not None:
            return found
        stored = None if self._atlas is None or self._is_doubtful(key) else self._atlas.get(key)
        if stored is None and not self._select_deadly(key):
            stored = read_shipped_findings(self._emulator.story.md5).get(key)
        if len(self._cached) >= _MAX_CACHED_STATES:
            self._cached.clear()
        found = decode_entry(stored, Findings)
        if found is not None:
            self._cached[key] = found
        return found

    def select_allowed(self, key: bytes, found: Findings) -> tuple[str, ...]:
        """Return the valid actions of a state without those that are forbidden there."""
        forbidden = self.forbidden.get(key)
        return _leave_out(found.actions, forbidden) if forbidden else found.actions

    def _search_timed(self, key: bytes, canonical: Snapshot) -> Findings:
        began = time.perf_counter()
        try:
            return self._search_state(key, canonical)
        finally:
            self.search_seconds += time.perf_counter() - began
            self.searches += 1

    def _search_state(self, key: bytes, canonical: Snapshot) -> Findings:
        described, self.described = self.described, (b"", "", "")
        texts = None if self.avoid or described[0] != key else described[1:]
        self._forbid_avoided(key)
        state = self._emulator.save()
        plain_key = self._make_plain_key(canonical)
        self._forget_unproven(key, plain_key)
        excluded = self.select_excluded(key, canonical)
        # What was found without commands that only this run leaves out is nothing for others.
        shared = excluded <= self._read_proven(key) | self._read_proven(plain_key)
        if self._search.extends:
            # What the templates give is kept by itself, so that other extensions need not search it again.
            known = decode_entry(self._atlas.get(plain_key), Findings) if self._atlas is not None else None
            found = known or self._search.findings(canonical, excluded, texts)
            if known is None and shared:
                self._store(plain_key, found)
            found = self._search.extended(canonical, found, excluded)
        else:
            found = self._search.findings(canonical, excluded, texts)
        self._emulator.restore(state)
        if shared:
            self._store(key, found)
        return found

    def _make_plain_key(self, canonical: Snapshot) -> bytes:
        return hashlib.blake2b(self._plain_prefix + self._make_world_key(canonical), digest_size=16).digest()

    def _store(self, key: bytes, found: Findings) -> None:
        if self._atlas is not None:
            self._atlas.put(key, msgspec.msgpack.encode(found))

    # --- what is not to be tried --------------------------------------------------------------------------------

    def forbid_for_good(self, key: bytes, action: str, *, share: bool = True) -> None:
        """Never try an action in a state again, not even in a search.

        share: also in later runs with this atlas, which is for what was seen to end a process of its own.
        """
        self.forbid(key, action)
        self._deadly[key] = self._deadly.get(key, frozenset()) | {action}
        self._cached.pop(key, None)
        if self._atlas is None or not share:
            return
        deadly = self._read_proven(key) | {action}
        self._atlas.put(DEADLY + key, msgspec.msgpack.encode(sorted(deadly)))
        found = decode_entry(self._atlas.get(key), Findings)
        if found is not None:
            actions = _leave_out(found.actions, deadly)
            self._store(key, msgspec.structs.replace(found, actions=actions))

    def select_excluded(self, key: bytes, canonical: Snapshot) -> frozenset[str]:
        """Return the commands that are not to be tried in a state."""
        deadly = self._select_deadly(key)
        return deadly | self._select_deadly(self._make_plain_key(canonical)) if self._search.extends else deadly

    def _forbid_avoided(self, key: bytes) -> None:
        """Forbid for good in this state what killed an earlier process there."""
        for action in self.avoid:
            self.forbid_for_good(key, action, share=action not in self.unproven)
            self.newly_forbidden.append((key, action))
        self.avoid = frozenset()

    def _select_deadly(self, key: bytes) -> frozenset[str]:
        """Commands that are never to be tried in a state, not even in a search."""
        return self._deadly.get(key, frozenset()) | self._read_proven(key)

    def _read_proven(self, key: bytes) -> frozenset[str]:
        """Those of them that the atlas knows."""
        stored = decode_entry(self._atlas.get(DEADLY + key), list[str]) if self._atlas is not None else None
        return frozenset(stored or ())

    def _is_doubtful(self, key: bytes) -> bool:
        """Whether an earlier version of xtx left verdicts about a state in the atlas without proof."""
        return self._atlas is not None and self._atlas.get(UNPROVEN + key) is not None

    def _forget_unproven(self, key: bytes, plain_key: bytes) -> None:
        """Delete what was found out about a state with commands left out without proof: it is searched now."""
        if self._atlas is not None and (self._is_doubtful(key) or self._is_doubtful(plain_key)):
            gone = [prefix + each for prefix in (b"", UNPROVEN) for each in (key, plain_key)]
            self._atlas.update(lambda known: dict.fromkeys(gone))


def _leave_out(actions: tuple[str, ...], unwanted: Collection[str]) -> tuple[str, ...]:
    """Return the actions that are left; never none, because an agent must be able to answer."""
    left = tuple(a for a in actions if a not in unwanted)
    return left or tuple(a for a in FALLBACK_ACTIONS if a not in unwanted) or FALLBACK_ACTIONS
