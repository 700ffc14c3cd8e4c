"""The data that agents learn from: replay memory of the Q-learner, trajectory store of the imitation policy.

Both store text ids only, have their own random state, and can be saved at any moment and continued exactly.
"""

from xtx.memory.priority_episodes import AboveRunningMean, Acceptance, BestScore, EpisodeRank
from xtx.memory.replay import ROW, TEXT_COLUMNS, ReplayMemory, ReplayPart
from xtx.memory.trajectories import Buffer, StoredEpisode, TrajectoryStore

__all__ = [
    "ROW",
    "TEXT_COLUMNS",
    "AboveRunningMean",
    "Acceptance",
    "BestScore",
    "Buffer",
    "EpisodeRank",
    "ReplayMemory",
    "ReplayPart",
    "StoredEpisode",
    "TrajectoryStore",
]
