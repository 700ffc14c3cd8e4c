"""The object-centric history of MPRC-DQN: earlier observations of the episode that tell of what can be acted on now."""

from __future__ import annotations

from collections.abc import Iterable

from xtx.agents.questions import Passage


class ObjectHistory:
    """What was seen in one episode so far. Of an observation its answer to `look` is kept, as in the authors' program:
    what is carried and what was just said are old news."""

    def __init__(self, window: int = 2) -> None:
        self._window = window
        self._passages: list[Passage] = []
        self.looks: list[str] = []
        """Oldest first."""

    def add(self, look: str) -> None:
        """Remembers one more."""
        self.looks.append(look)
        self._passages.append(Passage(look, len(look)))

    def recall(self, objects: Iterable[str]) -> list[str]:
        """At most `window` of them, oldest first: for each object the one that mentions it last, and of those the most
        recent; where there are fewer, the most recent of all besides."""
        newest_first = range(len(self.looks) - 1, -1, -1)
        chosen = set()
        for name in {*objects}:
            words = name.split()
            chosen.update(next(([i] for i in newest_first if self._passages[i].find(words)), []))
        chosen = set(sorted(chosen)[-self._window :])
        for i in newest_first:
            if len(chosen) >= self._window:
                break
            chosen.add(i)
        return [self.looks[i] for i in sorted(chosen)]

    def load(self, looks: Iterable[str]) -> None:
        """Begins with these."""
        self.looks, self._passages = [], []
        for look in looks:
            self.add(look)
