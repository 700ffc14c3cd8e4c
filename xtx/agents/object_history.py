"""The object-centric history of MPRC-DQN: earlier observations of an episode that concern the current objects."""

from __future__ import annotations

from collections.abc import Collection, Iterable


class ObjectHistory:
    """The observations of one episode, and the objects that could be acted on in each.

    Of an observation only the answer to `look` is stored, as in the authors' program: inventory and narration are out
    of date later in the episode.
    """

    def __init__(self, window: int = 2) -> None:
        """`window`: number of observations that `recall` returns at most."""
        self._window = window
        self._last: dict[str, int] = {}
        """For each object word, the index of the newest observation whose valid actions contain it."""
        self.looks: list[str] = []
        """The stored observations, oldest first."""
        self.objects: list[list[str]] = []
        """The words for objects in the valid actions of each observation, sorted."""

    def add(self, look: str, objects: Collection[str]) -> None:
        """Store an observation, with the object words in its valid actions."""
        self._last.update(dict.fromkeys(objects, len(self.looks)))
        self.looks.append(look)
        self.objects.append(sorted(objects))

    def recall(self, objects: Iterable[str]) -> list[str]:
        """Return at most `window` stored observations, oldest first, chosen by the objects of the current actions.

        For each object the newest observation that had it in a valid action is a candidate, whether its text mentions
        the object or not. The newest candidates are chosen; if there are fewer than `window`, the newest of the other
        observations fill up.
        """
        chosen = {self._last[name] for name in objects if name in self._last}
        chosen = set(sorted(chosen)[-self._window :])
        for i in range(len(self.looks) - 1, -1, -1):
            if len(chosen) >= self._window:
                break
            chosen.add(i)
        return [self.looks[i] for i in sorted(chosen)]

    def load(self, looks: Iterable[str], objects: Iterable[Collection[str]]) -> None:
        """Replace everything by these observations and their object words."""
        self.looks, self.objects, self._last = [], [], {}
        for look, names in zip(looks, objects, strict=True):
            self.add(look, names)
