"""The replay memory: all transitions in an ordinary part, those of the best episodes also in a priority part.

A transition is a row of a structured array. The learner chooses the columns; `ROW` has those of the Q-learners that
read narration, look and inventory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xtx.core import State
from xtx.memory.priority_episodes import Acceptance, BestScore, EpisodeRank
from xtx.memory.used_ids import find_distinct_ids

ROW = np.dtype(
    [
        ("narration", np.int32),
        ("look", np.int32),
        ("inventory", np.int32),
        ("action", np.int32),
        ("next_narration", np.int32),
        ("next_look", np.int32),
        ("next_inventory", np.int32),
        ("next_actions", np.int32),  # id of an action set, not of a text
        ("reward", np.float32),  # reward of the game + intrinsic reward
        ("terminal", np.bool_),  # no value follows
    ]
)
TEXT_COLUMNS = ("narration", "look", "inventory", "action", "next_narration", "next_look", "next_inventory")
"""The columns of ROW that hold text ids."""

Rows: TypeAlias = NDArray[np.void]
ReplayRow: TypeAlias = tuple[Any, ...] | np.void
"""One row: values in the order of the columns, or an element of Rows."""


class ReplayPart:
    """A ring buffer of the newest `capacity` rows. It grows by doubling, because most runs never fill a large one."""

    def __init__(self, dtype: np.dtype[np.void], capacity: int) -> None:
        if capacity < 0:
            raise ValueError("a part cannot have a negative capacity")
        self.capacity = capacity
        self._rows = np.empty(min(capacity, 64), dtype)
        self._length = 0
        self._next = 0  # index of the next row: behind the last until the ring is full, then that of the oldest

    def __len__(self) -> int:
        return self._length

    def add(self, row: ReplayRow) -> None:
        """Store one row."""
        if self.capacity == 0:
            return
        self._reserve(self._length + 1)
        self._rows[self._next] = row
        self._advance(1)

    def amend(self, back: int, column: str, value: Any) -> None:
        """Change a column of a stored row: the last row for `back` = 1, the one before for 2, and so on."""
        if back <= self._length:
            self._rows[column][(self._next - back) % len(self._rows)] = value

    def extend(self, rows: Rows) -> None:
        """Store rows, oldest first."""
        if self.capacity == 0:
            return
        rows = rows[-self.capacity :]
        self._reserve(self._length + len(rows))
        until_end = min(len(rows), self.capacity - self._next)
        self._rows[self._next : self._next + until_end] = rows[:until_end]
        self._rows[: len(rows) - until_end] = rows[until_end:]
        self._advance(len(rows))

    def clear(self) -> None:
        """Remove all rows."""
        self._length = self._next = 0

    def copy_rows(self) -> Rows:
        """Return a copy of all rows, oldest first."""
        stored = self._rows[: self._length]
        return np.roll(stored, -self._next) if self._length == self.capacity else stored.copy()

    def view_column(self, name: str) -> NDArray[Any]:
        """Return a view of one column, in no particular order."""
        return self._rows[name][: self._length]

    def sample(self, n: int, rng: np.random.Generator, *, replace: bool = False) -> Rows:
        """Draw `n` distinct rows, or all if there are fewer; with `replace` `n` independent rows of a part that is not
        empty."""
        if replace and n:
            return self._rows[rng.integers(self._length, size=n)]
        n = min(n, self._length)
        if n == 0:
            return self._rows[:0].copy()
        # NumPy uses Floyd's method: the cost grows with n, not with the number of rows. Without the shuffle their order
        # is not uniformly random, which does not matter in a batch.
        return self._rows[rng.choice(self._length, n, replace=False, shuffle=False)]

    def state(self) -> State:
        """Return an array for each column, in the order of the ring, for `load`."""
        return {"columns": _split_columns(self._rows[: self._length]), "next": self._next}

    def load(self, state: State) -> None:
        """Restore what `state` returned."""
        rows = _join_columns(state["columns"], self._rows.dtype)
        if len(rows) > self.capacity:
            raise ValueError(f"{len(rows)} rows were saved, but only {self.capacity} can be kept")
        self.clear()
        self.extend(rows)
        self._next = int(state["next"])

    def _reserve(self, length: int) -> None:
        if len(self._rows) < min(length, self.capacity):
            larger = np.empty(min(max(length, 2 * len(self._rows)), self.capacity), self._rows.dtype)
            larger[: self._length] = self._rows[: self._length]
            self._rows = larger

    def _advance(self, n: int) -> None:
        self._next = (self._next + n) % self.capacity
        self._length = min(self._length + n, self.capacity)


class ReplayMemory:
    """All transitions, and those of the best episodes once more; a batch takes a fixed share from each part."""

    def __init__(
        self,
        capacity: int,
        priority_share: float,
        batch_size: int,
        games: int,
        seed: int,
        *,
        dtype: np.dtype[np.void] = ROW,
        accept: Acceptance | None = None,
        one_by_one: bool = False,
    ) -> None:
        """capacity: rows of both parts together; priority_share: share of the priority part in rows and in batches;
        accept: which episodes enter the priority part, `BestScore` by default.

        one_by_one: sample as RC-DQN does. Rows are drawn independently, with replacement: floor(share * batch_size) + 1
        from the priority part as soon as it is not empty, the others from the ordinary part.
        """
        if not 0.0 <= priority_share <= 1.0:
            raise ValueError("priority_share must lie between 0 and 1")
        for_priority = _compute_share(priority_share, capacity)
        self.batch_size = batch_size
        self.dtype = dtype
        self.ordinary = ReplayPart(dtype, capacity - for_priority)
        self.priority = ReplayPart(dtype, for_priority)
        self.accept: Acceptance = accept if accept is not None else BestScore()
        self._wanted = _compute_share(priority_share, batch_size)
        self._one_by_one = one_by_one
        # The 1 separates this random stream from others that are seeded with the run's seed.
        self._rng = np.random.default_rng((seed, 1))
        # By game, its current episode. More rows than the priority part holds would be overwritten there anyway.
        self._running = [ReplayPart(dtype, for_priority) for _ in range(games)]

    @property
    def is_ready(self) -> bool:
        """Whether there are as many transitions as in a batch."""
        return len(self.ordinary) >= self.batch_size

    def add(self, game: int, row: ReplayRow) -> None:
        """Store a transition of a game's current episode."""
        self.ordinary.add(row)
        self._running[game].add(row)

    def amend(self, back: int, game: int, column: str, value: Any) -> None:
        """Change a column of the last transition of a game, which is the `back`-th last of all and did not end its
        episode."""
        self.ordinary.amend(back, column, value)
        self._running[game].amend(1, column, value)

    def end_episode(self, game: int, outcome: float) -> bool:
        """End the game's current episode, and return whether it entered the priority part.

        outcome: the number that the rule judges: the final score for `BestScore`, the sum of clipped rewards for
        `AboveRunningMean`.
        """
        verdict = self.accept.judge(outcome)
        episode = self._running[game]
        if verdict is EpisodeRank.REPLACE:
            self.priority.clear()
        if verdict is not EpisodeRank.REJECT:
            self.priority.extend(episode.copy_rows())
        episode.clear()
        return verdict is not EpisodeRank.REJECT

    def split_batch(self) -> tuple[int, int]:
        """Return how many rows of a batch come from the priority part and how many from the ordinary part.

        They are floor(share * batch_size) and the rest. A part with fewer rows gives all it has, and the batch is
        smaller; with `one_by_one` any part that is not empty gives its share.
        """
        if self._one_by_one:
            best = min(self._wanted + 1, self.batch_size) if len(self.priority) else 0
            return best, self.batch_size - best if len(self.ordinary) else 0
        return min(self._wanted, len(self.priority)), min(self.batch_size - self._wanted, len(self.ordinary))

    def sample(self) -> Rows:
        """Draw a batch: as many rows from each part as `split_batch` says, those of the priority part first.

        Rows within a part are distinct unless `one_by_one`; a transition can be drawn from both parts.
        """
        best, ordinary = self.split_batch()
        rows = np.empty(best + ordinary, self.dtype)
        rows[:best] = self.priority.sample(best, self._rng, replace=self._one_by_one)
        rows[best:] = self.ordinary.sample(ordinary, self._rng, replace=self._one_by_one)
        return rows

    def list_live_texts(self, columns: Iterable[str] = TEXT_COLUMNS) -> NDArray[np.int64]:
        """Return the distinct ids in these columns, in both parts and in the current episodes, ascending.

        With the column `next_actions` alone they are the ids of action sets.
        """
        parts = [self.ordinary, self.priority, *self._running]
        return find_distinct_ids(part.view_column(name) for name in columns for part in parts)

    def state(self) -> State:
        """Return everything for `load`. The integers under `random` have 128 bits: Python's JSON keeps them, an array
        would not."""
        running = [episode.copy_rows() for episode in self._running]
        return {
            "random": self._rng.bit_generator.state,
            "accept": self.accept.state(),
            "ordinary": self.ordinary.state(),
            "priority": self.priority.state(),
            "running": _split_columns(np.concatenate(running)),
            "running_lengths": np.array([len(rows) for rows in running], np.int64),
        }

    def load(self, state: State) -> None:
        """Restore what `state` of a memory of the same shape returned."""
        self._rng.bit_generator.state = state["random"]
        self.accept.load(state["accept"])
        self.ordinary.load(state["ordinary"])
        self.priority.load(state["priority"])
        running = _join_columns(state["running"], self.dtype)
        ends = np.cumsum(state["running_lengths"])
        for episode, rows in zip(self._running, np.split(running, ends[:-1]), strict=True):
            episode.clear()
            episode.extend(rows)


def _compute_share(share: float, whole: int) -> int:
    """Return floor(share * whole), after rounding errors are removed: 0.29 * 100 is 29, not 28."""
    return math.floor(round(share * whole, 9))


def _split_columns(rows: Rows) -> dict[str, NDArray[Any]]:
    """Return a copy of each column."""
    assert rows.dtype.names is not None
    return {name: rows[name].copy() for name in rows.dtype.names}


def _join_columns(columns: dict[str, NDArray[Any]], dtype: np.dtype[np.void]) -> Rows:
    """Join columns to rows. Raises `ValueError` if they are not those of `dtype`."""
    if set(columns) != set(dtype.names or ()):
        raise ValueError(f"the saved columns are {sorted(columns)}, the memory's {sorted(dtype.names or ())}")
    rows = np.empty(len(next(iter(columns.values()))), dtype)
    for name, column in columns.items():
        rows[name] = column
    return rows
