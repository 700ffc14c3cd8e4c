"""`xtx agents`: the agents, each with one line; or the settings of one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from xtx.agents.from_file import accept_agent
from xtx.agents.registry import AGENTS, find_agent, list_agent_names, make_preset
from xtx.cli.option_help import build_rows, build_settings
from xtx.config.settings import PAPER_AGENTS, get_default_actions, get_default_length


@dataclass(frozen=True)
class Args:
    """Lists the agents that can be trained. With the name of one, shows its settings, which are options of `xtx train`;
    with a game, those for that game."""

    agent: Annotated[Positional[str], arg(metavar="AGENT")] = ""
    """The agent whose settings are shown. FILE.py:CLASS is loaded, and may be from now on."""
    game: str = ""
    """The game for which they are shown; some agents have other settings for some games."""


def run(args: Args) -> None:
    """Prints the list, or the settings."""
    agent, game = accept_agent(args.agent), Path(args.game).stem.lower()
    print(_format_settings(agent, game) if agent else _format_overview())


def _format_overview() -> str:
    parts = [f"{title}:\n{build_rows(rows)}" for title, rows in list_summaries().items() if rows]
    return "\n\n".join([*parts, "`xtx agents AGENT` shows its settings, `xtx train GAME --agent AGENT` trains it."])


def list_summaries() -> dict[str, list[tuple[str, str]]]:
    """Names and summaries: of the paper's agents, of ours, and of those that other packages offer."""
    known = {name: listed.summary for name, listed in AGENTS.items()}
    return {
        "agents of the paper": [(name, summary) for name, summary in known.items() if name in PAPER_AGENTS],
        "other agents": [(name, summary) for name, summary in known.items() if name not in PAPER_AGENTS],
        "agents of other packages": [
            (name, _read_first_line(name)) for name in list_agent_names() if name not in known
        ],
    }


def _read_first_line(name: str) -> str:
    """The first line of an agent's docstring. Its module is not loaded for that if it cannot be."""
    try:
        return (find_agent(name).__doc__ or "").strip().partition("\n")[0]
    except Exception as error:  # a package of someone else's: whatever is wrong with it, the list is still shown
        return f"cannot be loaded: {' '.join(str(error).split())}"


def _format_settings(agent: str, game: str) -> str:
    find_agent(agent)
    settings = make_preset(agent, game)
    steps, num_envs = get_default_length(agent)
    summary = AGENTS[agent].summary if agent in AGENTS else _read_first_line(agent)
    head = f"{agent}: {summary}\n{steps:,} game steps in {num_envs} {'env' if num_envs == 1 else 'envs'} unless told "
    head += f"otherwise; valid actions: {get_default_actions(agent)}"
    table = build_settings(settings)
    return f"{head}\n\n{table or 'It has no settings.'}"
