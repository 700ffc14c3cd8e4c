"""An agent without training: eight games stepped together, random valid actions, the best score of each."""

import random

import xtx

STEPS = 40
chance = random.Random(0)

with xtx.make_vector("lowwater", num_envs=8, workers=2) as games:
    observations = games.reset()
    best = [0] * len(games)
    for _ in range(STEPS):
        steps = games.step([chance.choice(observation.actions) for observation in observations])
        observations = [step.observation for step in steps]
        best = [max(score, observation.score) for score, observation in zip(best, observations, strict=True)]
        ended = [number for number, step in enumerate(steps) if step.terminated]
        for number, first in zip(ended, games.reset(ended) if ended else [], strict=True):
            observations[number] = first
    print(f"best scores after {STEPS} steps: {best}, of {games.max_score}")
