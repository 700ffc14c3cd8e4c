"""Valid actions: which commands change the world, found by trying them.

Candidate objects -> templates of the game's grammar -> each candidate tried from the canonical state -> one
action for each distinct change. Everything starts from a canonical state and fixed random numbers (canonical_state.py),
so that the result is a function of the state's key and can be stored for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from xtx.games.actions.command_effects import RANDOM_STATES as RANDOM_STATES
from xtx.games.actions.template_search import Findings as Findings
from xtx.games.actions.template_search import TemplateSearch
from xtx.games.actions.whole_search import WholeSearch
from xtx.games.canonical.canonical_state import World
from xtx.games.emulator.frotz import Emulator, Snapshot
from xtx.games.zmachine.typed_input import find_interpreter_word
from xtx.games.zset.engine import Engine
from xtx.search_versions import WHOLE_VERSION


class Search(TemplateSearch):
    """The valid-action search of one emulator."""

    def __init__(
        self,
        emulator: Emulator,
        extra_actions: Sequence[str] = (),
        engine: Engine | None = None,
        world: World | None = None,
        whole: bool = False,
        *,
        usual_verbs: bool = False,
    ) -> None:
        """`engine` judges candidates by set execution, and nothing is run in Frotz; without one each is tried there,
        the plain way, with the same verdicts but for what the engine gives up. `world` finds changes that do not show
        in the object tree. With `whole` every word of the dictionary is tried. With `usual_verbs` a change is named by
        the command with the most usual verb, not by the shortest."""
        super().__init__(emulator, engine, world, whole=whole, usual_verbs=usual_verbs)
        self._extra = tuple(extra_actions)
        self._whole = WholeSearch(self) if whole else None

    @property
    def variant(self) -> str:
        """What beside the state decides `extended`."""
        extra = "\0".join(self._extra)
        forms = f"whole{WHOLE_VERSION}" if self._whole else ""
        return f"{self.plain_variant};{forms};{extra}"

    @property
    def extends(self) -> bool:
        """Whether anything is tried beyond the game's templates."""
        return self._whole is not None or bool(self._extra)

    def extended(self, state: Snapshot, found: Findings, excluded: Collection[str] = ()) -> Findings:
        """The findings with those extra actions that do something new, and with what the whole dictionary adds."""
        self.judge.excluded = excluded
        if self.cannot_try(state):
            return found
        if self._extra:
            found = self._with_extra_actions(state, found, excluded)
        return self._whole.extend(state, found) if self._whole else found

    def _with_extra_actions(self, state: Snapshot, found: Findings, excluded: Collection[str]) -> Findings:
        known = [a for a in found.actions if a not in excluded]
        unwanted = {*excluded, *known}
        extra = [c for c in dict.fromkeys(self._extra) if not find_interpreter_word(c, self.dictionary.length)]
        new = [c for c in extra if c not in unwanted]
        effect = self.effects(state, [*known, *new])
        old = set(effect[: len(known)].tolist()) | {0}
        fresh = [i for i in range(len(known), len(effect)) if int(effect[i]) not in old]
        added = self.choose([new[i - len(known)] for i in fresh], effect[fresh])
        if not added:
            return found
        real = tuple(a for a, e in zip(known, effect, strict=False) if e != 0)
        return msgspec.structs.replace(found, actions=(*real, *added))
