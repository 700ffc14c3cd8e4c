"""Actions that are forbidden in states of a game, and the work of searches: what a worker reads of any game."""

from __future__ import annotations


class ActionVerdicts:
    """Which actions are forbidden in which states of a game, and how long searches of valid actions took."""

    def __init__(self) -> None:
        self.forbidden: dict[bytes, frozenset[str]] = {}
        """Actions that the emulator cannot finish, by the key of the state in which it cannot."""
        self.newly_forbidden: list[tuple[bytes, str]] = []
        """Those found since this list was last cleared."""
        self.avoid: frozenset[str] = frozenset()
        """Candidates that ended an earlier process in the next state to be searched: left out there, for good."""
        self.unproven: frozenset[str] = frozenset()
        """Those of them that ended no process that tried them alone: later runs do not leave them out."""
        self.search_seconds = 0.0
        """Time spent on searches so far."""
        self.searches = 0
        """Number of searches so far."""

    def forbid(self, key: bytes, action: str) -> None:
        """Never offer or step an action in a state again."""
        self.forbidden[key] = self.forbidden.get(key, frozenset()) | {action}

    def forbid_for_good(self, key: bytes, action: str, *, share: bool = True) -> None:
        """Never try an action in a state again, not even in a search; with `share`, also not in later runs."""
        self.forbid(key, action)
