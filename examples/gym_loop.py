"""The usual Gymnasium loop on the adventure that comes with xtx: random valid actions for 30 steps."""

import gymnasium

# The part before the colon is imported first: it registers xtx/lowwater-v0, xtx/zork1-v0, ...
env = gymnasium.make("xtx.games.gym:xtx/lowwater-v0", max_episode_steps=30)
narration, info = env.reset(seed=0)
total, done = 0.0, False
while not done:
    actions = info["actions"]
    action = actions[int(env.unwrapped.np_random.integers(len(actions)))]
    narration, reward, terminated, truncated, info = env.step(action)
    total += reward
    done = terminated or truncated
    print(f"> {action}\n{narration.splitlines()[0]}")
print(f"{total:.0f} of {info['max_score']} points in {info['step']} steps")
env.close()
