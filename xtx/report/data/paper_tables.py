"""The figures of the paper's tables."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec


class PaperFigures(msgspec.Struct, frozen=True, array_like=True):
    """What a table says of one agent on one game: means and standard deviations over three seeds."""

    avg: float
    avg_std: float
    max: float
    max_std: float


class Normalised(msgspec.Struct, frozen=True):
    """An agent's normalised scores averaged over a table's games, in per cent."""

    avg: float
    max: float


class PaperRow(msgspec.Struct, frozen=True):
    """One game; a star behind its name says that actions were added to its grammar."""

    maximum: int
    agents: dict[str, PaperFigures]


class PaperTable(msgspec.Struct, frozen=True):
    """The results of deterministic or of stochastic games."""

    main: tuple[str, ...]
    """The rows in the paper's body; the others are in the appendix."""
    normalised: dict[str, Normalised]
    rows: dict[str, PaperRow]


class Paper(msgspec.Struct, frozen=True):
    """All that we carry over."""

    source: str
    seeds: int
    steps: dict[str, int]
    """Game steps of each agent's runs."""
    deterministic: PaperTable
    stochastic: PaperTable
    between_rewards: dict[str, tuple[int, int]] = msgspec.field(name="steps_between_rewards")
    """Steps between rewards along each game's walkthrough: mean and largest."""

    def choose_table(self, stochastic: bool) -> PaperTable:
        """One of the two."""
        return self.stochastic if stochastic else self.deterministic

    def find_row_name(self, game: str, extra_actions: bool) -> str:
        """What the paper calls a game: with a star if it is played with added actions and there are any for it."""
        return f"{game}*" if extra_actions and f"{game}*" in self.deterministic.rows else game

    def find_maximum(self, game: str) -> int | None:
        """The most points that a game has, by its name without star; None if it is not one of the paper's."""
        row = self.deterministic.rows.get(game) or self.deterministic.rows.get(f"{game}*")
        return row.maximum if row else None


@cache
def read_paper() -> Paper:
    """The paper's figures, from the package's own data."""
    return msgspec.json.decode((Path(__file__).parent / "paper.json").read_bytes(), type=Paper)
