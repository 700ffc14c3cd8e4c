"""What the games of a vector must not try, and who of them knows it already."""

from __future__ import annotations

from collections.abc import Iterable

from xtx.games.worker import Verdict


class Ledger:
    """All verdicts so far, in the order in which they were found."""

    def __init__(self, forbidden: Iterable[tuple[str, str, bool]]) -> None:
        """`forbidden` is what an earlier vector found: keys of states in hex, actions, and whether they are deadly."""
        self._all: list[Verdict] = [(bytes.fromhex(key), action, deadly) for key, action, deadly in forbidden]
        self._known = {(key, action) for key, action, _ in self._all}
        self._recalled = len(self._all)
        """How many of them were given: they were found by other processes."""
        self._frozen = False
        self.told = 0
        """How many of them were sent to any game."""

    @property
    def forbidden(self) -> list[tuple[str, str, bool]]:
        """As they were given."""
        return [(key.hex(), action, deadly) for key, action, deadly in self._all]

    @property
    def untold(self) -> bool:
        """Whether there are some that nobody was told."""
        return self.told < len(self._all)

    def add(self, found: Iterable[Verdict]) -> list[str]:
        """Takes over new ones; the actions that they are about."""
        # A deadly one sorts behind the same one that only hung, and takes its place.
        new = {(key, action): deadly for key, action, deadly in sorted(found) if (key, action) not in self._known}
        self._known.update(new)
        self._all += [(key, action, deadly) for (key, action), deadly in new.items()]
        return [action for _, action in new]

    def freeze(self) -> None:
        """From now on nobody is told more than was told so far, not even who is told for the first time: what some
        games on their way have found without the newest ones, the others must find without them."""
        self._frozen = True

    def thaw(self) -> None:
        """Ends that."""
        self._frozen = False

    def news(self, known: int) -> tuple[list[Verdict], list[Verdict]]:
        """What is to be told to a worker that knows so many: those that were found here, and those that were given.
        They count as told then."""
        if not self._frozen:
            self.told = len(self._all)
        given = max(known, min(self._recalled, self.told))
        return self._all[given : self.told], self._all[known:given]
