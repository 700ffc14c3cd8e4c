"""Two agents as a sweep; then their scores, and a report of all runs on one page. More seeds and steps say more."""

import numpy as np

import xtx

runs = xtx.sweep(games=["lowwater"], agents=["random", "drrn"], seeds=[0], steps=240, small=True, out="runs/compare")
for agent in ("random", "drrn"):
    means = [np.mean(run.episodes.column("score")) for run in runs if run.config.agent == agent]
    print(f"{agent}: {np.mean(means):.1f} points on average over {len(means)} seeds")
print("written:", xtx.report(runs, "runs/compare.html"))
