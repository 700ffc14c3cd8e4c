"""An agent of your own: Q-learning with a table. Also: xtx train lowwater --agent custom_agent.py:TableAgent"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import xtx


class TableAgent(xtx.Agent):
    """Values of actions by place and inventory."""

    @dataclass(frozen=True)
    class Settings:
        epsilon: float = 0.1
        """Share of actions that are drawn at random."""
        episode_limit: int = 40

    def __init__(self, settings: Settings, brief: xtx.Brief) -> None:
        super().__init__(settings, brief)
        self.table: dict[str, float] = {}
        self.random = np.random.default_rng(brief.seed)

    @property
    def episode_limit(self) -> int:
        return self.settings.episode_limit

    def value(self, seen: xtx.Observation, action: str) -> float:
        return self.table.get(f"{seen.look}/{seen.inventory}/{action}", 1.0)  # what was never tried is worth trying

    def act(self, observations: Sequence[xtx.Observation]) -> list[xtx.Decision]:
        chosen = []
        for seen in observations:
            greedy = max(seen.actions, key=lambda action: self.value(seen, action))
            explores = self.random.random() < self.settings.epsilon
            chosen.append(xtx.Decision(str(self.random.choice(seen.actions)) if explores else greedy))
        return chosen

    def learn(self, transitions: Sequence[xtx.Transition]) -> dict[str, float]:
        for t in transitions:
            after = 0.0 if t.terminated else 0.9 * max(self.value(t.after, action) for action in t.after.actions)
            key = f"{t.before.look}/{t.before.inventory}/{t.decision.action}"
            old = self.value(t.before, t.decision.action)
            self.table[key] = 0.5 * old + 0.5 * (t.reward + after)
        return {"entries": len(self.table)}

    def state(self) -> dict[str, object]:
        return {"table": self.table, "random": self.random.bit_generator.state}

    def load(self, state: dict[str, object]) -> None:
        self.table, self.random.bit_generator.state = state["table"], state["random"]


if __name__ == "__main__":
    run = xtx.train("lowwater", agent=TableAgent, steps=800, settings={"epsilon": 0.05}, out="runs/table-agent")
    best = run.best()
    print(f"best episode: {best.score} points, by {' / '.join(best.actions)}")
    print(f"mean of its last 20 episodes: {np.mean(run.episodes.column('score')[-20:]):.1f}")
