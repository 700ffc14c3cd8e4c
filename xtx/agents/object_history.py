"""The object-centric history of MPRC-DQN: earlier observations of the episode in which the objects of the present
actions could be acted on."""

from __future__ import annotations

from collections.abc import Collection, Iterable


class ObjectHistory:
    """What was seen in one episode so far. Of an observation its answer to `look` is kept, as in the authors' program:
    what is carried and what was just said are old news."""

    def __init__(self, window: int = 2) -> None:
        self._window = window
        self._last: dict[str, int] = {}
        """The newest observation in whose valid actions a word for an object occurred."""
        self.looks: list[str] = []
        """Oldest first."""
        self.objects: list[list[str]] = []
        """The words for objects in the valid actions of each observation, sorted."""

    def add(self, look: str, objects: Collection[str]) -> None:
        """Remember one more observation, with the words for objects in its valid actions."""
        self._last.update(dict.fromkeys(objects, len(self.looks)))
        self.looks.append(look)
        self.objects.append(sorted(objects))

    def recall(self, objects: Iterable[str]) -> list[str]:
        """At most `window` of them, oldest first: for each object the last one at which it occurred in a valid action,
        whether its text mentions it or not, and of those the most recent; where there are fewer, the most recent of
        all besides."""
        chosen = {self._last[name] for name in objects if name in self._last}
        chosen = set(sorted(chosen)[-self._window :])
        for i in range(len(self.looks) - 1, -1, -1):
            if len(chosen) >= self._window:
                break
            chosen.add(i)
        return [self.looks[i] for i in sorted(chosen)]

    def load(self, looks: Iterable[str], objects: Iterable[Collection[str]]) -> None:
        """Begin with these."""
        self.looks, self.objects, self._last = [], [], {}
        for look, names in zip(looks, objects, strict=True):
            self.add(look, names)
