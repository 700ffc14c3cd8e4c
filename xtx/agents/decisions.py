"""What agents answer, checked: agents also come from users' files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xtx.core import Agent, Decision, Observation, Transition, UserError


def decide(agent: Agent, observations: Sequence[Observation]) -> list[Decision]:
    """One decision for each observation, with Python's own strings. Raises `UserError` if the agent gives others."""
    decisions = agent.act(observations)
    wrong: list[object] = [] if isinstance(decisions, list | tuple) else [decisions]
    wrong = wrong or [one for one in decisions if not (isinstance(one, Decision) and isinstance(one.action, str))]
    if wrong:
        raise UserError(
            f"{type(agent).__name__}.act must return a list of xtx.Decision(action), one for each of "
            f"{len(observations)} observations; it gave {wrong[0]!r:.60}"
        )
    if len(decisions) != len(observations):
        raise UserError(f"{type(agent).__name__}.act gave {len(decisions)} decisions for {len(observations)} games")
    return [_make_plain(one) for one in decisions]


def learn(agent: Agent, transitions: Sequence[Transition]) -> dict[str, float]:
    """Let the agent learn; return its numbers as Python's. Raises `UserError` if it returns others."""
    return _check_numbers(agent, "learn", agent.learn(transitions))


def describe(agent: Agent) -> dict[str, float]:
    """The agent's plan in Python's numbers. Raises `UserError` if it returns others."""
    return _check_numbers(agent, "describe", agent.describe())


def _check_numbers(agent: Agent, method: str, numbers: object) -> dict[str, float]:
    try:
        if not isinstance(numbers, Mapping) or not all(isinstance(name, str) for name in numbers):
            raise TypeError
        return {name: n if type(n) in (int, float, bool) else float(n) for name, n in numbers.items()}
    except (TypeError, ValueError):
        raise UserError(
            f"{type(agent).__name__}.{method} must return a dictionary of numbers by their names, not {numbers!r:.60}"
        ) from None


def _make_plain(decision: Decision) -> Decision:
    """The decision as files can keep it: NumPy's strings are strings, and yet no JSON; nor is half a surrogate pair."""
    if all(type(text) is str and text.isascii() for text in (decision.action, decision.phase)):
        return decision
    return Decision(_make_text(decision.action), _make_text(decision.phase or ""))


def _make_text(text: str) -> str:
    return str(text).encode("utf-8", "replace").decode()
