"""What can be done here? Valid actions along the walkthrough, and how a state is saved and restored."""

import xtx

with xtx.make("lowwater") as game:
    game.reset()
    for command in game.walkthrough[:6]:
        print(f"{game.room}: {', '.join(game.valid_actions())}")
        game.step(command)
    saved, score = game.save(), game.score

    # Every valid action, tried from the same state.
    for action in game.valid_actions():
        step = game.step(action)
        print(f"{action}: {step.reward:+d}, {step.observation.text.splitlines()[0]}")
        game.restore(saved)
    assert game.score == score
