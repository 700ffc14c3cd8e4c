"""How much work a survey may do, counted so that it is the same on every machine, and how far it has come."""

from __future__ import annotations

from collections.abc import Callable

QUICK = 2_400_000_000
"""Work units of a usual survey: at most about 10 seconds on two cores, 20 with one thread (measured: docs/games.md)."""
THOROUGH = 40 * QUICK
"""Work units of a survey that was asked to be thorough: minutes."""

FROTZ_WEIGHT = 3
"""Work units of one instruction in Frotz, which takes so many times as long as one in the set-execution engine."""

CHECKING = "checking against the walkthrough"
"""The stage that puts bytes back into the key on which commands depend. Where it is cut short, all are put back."""

Progress = Callable[[float, str], None]
"""Called with the share of the budget that is spent, from 0 to 1, and what is being done."""


class Budget:
    """Work units spent so far, and how many may be spent until the end of the present stage.

    One unit is an instruction of the set-execution engine, or one number in a vector that it made: about five
    nanoseconds. Seconds would do as well if two machines were to agree on them."""

    def __init__(self, total: int = QUICK, on_progress: Progress | None = None) -> None:
        self.total = total
        self.spent = 0
        self.cut_short: list[str] = []
        """Names of the stages that were not done when their share was spent."""
        self._until = 1.0
        self._stage = ""
        self._on_progress = on_progress

    def begin(self, stage: str, until: float, at_least: float = 0.0) -> None:
        """Begins a stage, which may go on until this share of the whole budget is spent. What earlier stages left over
        is for later ones; `at_least` this share it has by itself, whatever they have spent."""
        self._stage, self._until = stage, max(until, self.spent / self.total + at_least)
        self._report()

    def spend(self, units: int) -> None:
        """Counts work that was done."""
        self.spent += units
        self._report()

    @property
    def is_spent(self) -> bool:
        """Whether the present stage has to end. Noted, because what it did not get to is missing from the layout."""
        return self.is_beyond(self._until)

    def is_beyond(self, share: float) -> bool:
        """Whether more than a share of the whole budget is spent; noted likewise."""
        beyond = self.spent >= self.total * share
        if beyond and self._stage not in self.cut_short:
            self.cut_short.append(self._stage)
        return beyond

    @property
    def left(self) -> int:
        """Units that the present stage may still spend."""
        return max(0, int(self.total * self._until) - self.spent)

    def _report(self) -> None:
        if self._on_progress is not None:
            self._on_progress(min(1.0, self.spent / self.total), self._stage)
