"""RC-DQN and MPRC-DQN: acting as reading comprehension."""
