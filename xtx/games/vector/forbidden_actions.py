"""The actions that are forbidden in certain states, and which of them the workers of a vector were sent already."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from xtx.games.vector.messages import ForbiddenAction


class ForbiddenActions:
    """All verdicts of a run, in the order in which they were found."""

    def __init__(self, forbidden: Iterable[tuple[str, str, bool]]) -> None:
        """forbidden: verdicts of an earlier vector: the key of a state in hex, an action, whether it ends the
        process."""
        self._all: list[ForbiddenAction] = [(bytes.fromhex(key), action, deadly) for key, action, deadly in forbidden]
        self._known = {(key, action): deadly for key, action, deadly in self._all}
        self._recalled = {(key, action) for key, action, _ in self._all}
        """Those that workers do not write to the atlas: from an earlier vector, or unproven."""
        self._is_frozen = False
        self.num_sent = 0
        """How many of them were sent to workers."""

    @property
    def forbidden(self) -> list[tuple[str, str, bool]]:
        """All verdicts, in the form in which `__init__` takes them."""
        return [(key.hex(), action, deadly) for key, action, deadly in self._all]

    @property
    def has_unsent(self) -> bool:
        """Whether there are verdicts that were not sent to any worker."""
        return self.num_sent < len(self._all)

    def add(self, found: Iterable[ForbiddenAction], unproven: Collection[str] = ()) -> list[str]:
        """Add verdicts, and return the actions of those that are new. Those about `unproven` actions stay with this
        run."""
        # A deadly verdict sorts behind a harmless one about the same action, and replaces it, also where that was sent.
        new = {
            (key, action): deadly
            for key, action, deadly in sorted(found)
            if (key, action) not in self._known or (deadly and not self._known[key, action])
        }
        self._known.update(new)
        self._all += [(key, action, deadly) for (key, action), deadly in new.items()]
        self._recalled.difference_update(new)
        self._recalled.update((key, action) for key, action in new if action in unproven)
        return [action for _, action in new]

    def freeze(self) -> None:
        """Send no verdicts beyond those sent so far, not even to a new worker.

        All games of a vector step must search with the same verdicts, or the result would depend on the workers.
        """
        self._is_frozen = True

    def thaw(self) -> None:
        """Allow new verdicts to be sent again."""
        self._is_frozen = False

    def select_unsent(self, known: int) -> tuple[list[ForbiddenAction], list[ForbiddenAction]]:
        """Return the verdicts to send to a worker that has the first `known` of them, and count them as sent.

        Returns those that later runs may know, then those that stay with this run.
        """
        if not self._is_frozen:
            self.num_sent = len(self._all)
        shared: list[ForbiddenAction] = []
        recalled: list[ForbiddenAction] = []
        for verdict in self._all[known : self.num_sent]:
            (recalled if verdict[:2] in self._recalled else shared).append(verdict)
        return shared, recalled
