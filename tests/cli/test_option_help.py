"""What `--help` and `--help-all` print, and which numbers options take."""

from __future__ import annotations

import importlib
import re
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import pytest
from tyro.conf import Positional, arg

from xtx.agents.registry import AGENTS, make_preset
from xtx.cli.main import COMMANDS, _parse, main
from xtx.cli.option_help import build_help, read_options
from xtx.cli.option_numbers import parse_real, parse_whole
from xtx.cli.training.train import _make_args_type, make_options_type
from xtx.config.settings import RunConfig, get_default_length

MOST_USUAL = 13
"""Options that the first level of help shows at most."""


def kind_of(name: str) -> Any:
    module = importlib.import_module(COMMANDS[name].module)
    return module.make_options_type(["--agent", "xtx"]) if COMMANDS[name].own_arguments else module.Args


@pytest.mark.parametrize("option", ["--help", "--help-all"])
@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_and_says_everything(
    name: str, option: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*name.split(), option]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "None" not in out and "False" not in out and "{" not in out
    if name == "games" or (option == "--help" and getattr(kind_of(name), "USUAL", ())):
        return
    shown = re.sub(r"\s+", " ", out)
    for one in read_options(kind_of(name)):
        assert one.text, f"{name}: {one.field} has no text"
        assert one.text in shown, "also: no word is broken"
        assert all(f" {typed}" in shown for typed in one.names)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_first_level_is_short(name: str) -> None:
    kind = kind_of(name)
    first = build_help(kind, name, complete=False, width=80)
    shown = [line for line in first.splitlines() if re.match(r"  -", line)]
    assert len(shown) <= MOST_USUAL + 2, "with the two about help"
    usual = getattr(kind, "USUAL", ())
    assert set(usual) <= {option.field for option in read_options(kind)}
    assert ("--help-all" in first) == bool(usual)


@pytest.mark.parametrize(
    ("words", "hidden", "alpha1"),
    [
        ([], 64, 1),
        (["zork1"], 128, 1),
        (["--seed", "3", "--stochastic", "detective"], 128, 2),
        (["--agent=xtx"], 128, 1),
    ],
)
def test_help_shows_the_defaults_of_the_game_that_is_named(words: list[str], hidden: int, alpha1: float) -> None:
    defaults = {option.names[0]: option.default for option in read_options(make_options_type(words)) if option.names}
    assert defaults["--q.hidden"] == str(hidden)
    assert defaults["--inverse.alpha1"] == str(alpha1)


@pytest.mark.parametrize("agent", AGENTS)
def test_what_help_says_is_what_is_parsed(agent: str) -> None:
    """Every option, typed with the default that help shows, gives that default."""
    kind = _make_args_type(agent, "")
    usual = asdict(_parse(kind, "train", []))
    for option in read_options(kind):
        if option.names and option.value and option.default:
            assert asdict(_parse(kind, "train", [option.names[0], option.default])) == usual, option
        elif option.names and not option.value:
            for typed in option.names:
                group = option.group.split(".") if option.group else []
                found: Any = _parse(kind, "train", [typed])
                found = found.settings if option.is_setting else found
                for part in group:
                    found = getattr(found, part)
                found = found if hasattr(found, option.field) else found.options
                is_off = typed.endswith(f"no-{option.field.replace('_', '-')}")
                assert getattr(found, option.field) is not is_off


def test_a_setting_that_is_on_can_be_named_either_way() -> None:
    kind = _make_args_type("xtx-own", "")
    assert _parse(kind, "train", ["--own-targets"]).settings.own_targets
    assert not _parse(kind, "train", ["--no-own-targets"]).settings.own_targets
    line = next(option for option in read_options(kind) if option.field == "own_targets")
    assert (line.left, line.default) == ("--own-targets, --no-own-targets", "on")


@pytest.mark.parametrize(("words", "agent"), [([], "xtx-demo"), (["lowwater"], "xtx"), (["--agent", "drrn"], "drrn")])
def test_the_help_says_whose_settings_it_shows(
    words: list[str], agent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words, "--help-all"]) == 0
    titles = [line for line in capsys.readouterr().out.splitlines() if line.startswith("settings of ")]
    assert titles and all(title.startswith((f"settings of {agent}:", f"settings of {agent}, --")) for title in titles)


def test_the_numbers_in_the_help_of_train(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those that runs have."""
    assert main(["train", "--help-all"]) == 0
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    steps = re.search(r"if not given (\d+), (\d+) for rc-dqn and mprc-dqn, (\d+) for xtx-demo\.", out)
    envs = re.search(r"if not given (\d+), or (\d+) for rc-dqn and mprc-dqn\.", out)
    assert steps is not None and envs is not None
    begun: list[RunConfig] = []
    monkeypatch.setattr("xtx.cli.training.train.train", lambda config, *_: begun.append(config) or 0)
    for agent in ("xtx", "rc-dqn", "mprc-dqn", "xtx-demo", "drrn"):
        assert main(["train", "lowwater", "--agent", agent]) == 0
    assert [run.steps for run in begun] == [int(steps[place]) for place in (1, 2, 2, 3, 1)]
    assert [run.num_envs for run in begun] == [int(envs[place]) for place in (1, 2, 2, 1, 1)]


def test_the_earlier_name_of_num_envs_is_taken_and_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[RunConfig] = []
    monkeypatch.setattr("xtx.cli.training.train.train", lambda config, *_: begun.append(config) or 0)
    for option in ("--num-envs", "--games"):
        assert main(["train", "lowwater", "--agent", "drrn", option, "3"]) == 0
    assert [run.num_envs for run in begun] == [3, 3]
    for command in ("train", "bench"):
        assert main([command, "--help-all"]) == 0
        out = capsys.readouterr().out
        assert "--num-envs N" in out and "--games" not in out


def test_agents_and_their_settings(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["agents"]) == 0
    listed = capsys.readouterr().out
    assert main(["train", "--help"]) == 0
    helped = capsys.readouterr().out
    for name, agent in AGENTS.items():
        assert re.search(rf"^  {re.escape(name)} +{re.escape(agent.summary)}$", listed, re.MULTILINE)
        assert re.search(rf"^  {re.escape(name)} +{re.escape(agent.summary)}$", helped, re.MULTILINE)
    assert len({agent.summary for agent in AGENTS.values()}) == len(AGENTS)
    assert main(["agents", "xtx", "--game", "deephome"]) == 0
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert f"{get_default_length('xtx')[0]:,} game steps in 8 envs" in out and "valid actions: templates" in out
    alpha = make_preset("xtx", "deephome").inverse.alpha1
    assert f"--inverse.alpha1 X Weight of the inverse dynamics loss as intrinsic reward. (default: {alpha:g})" in out
    assert main(["agents", "random"]) == 0
    assert "no settings" in capsys.readouterr().out
    assert main(["agents", "drnn"]) == 2
    assert "did you mean drrn?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "number"),
    [("800000", 800_000), ("800_000", 800_000), ("800k", 800_000), ("1e4", 10_000), ("1.5M", 1_500_000), ("-1", -1)],
)
def test_numbers(text: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_whole(text) == number
    assert parse_real(text) == float(number)
    begun: list[RunConfig] = []
    monkeypatch.setattr("xtx.cli.training.train.train", lambda config, *_: begun.append(config) or 0)
    assert main(["train", "lowwater", "--agent", "random", "--steps", text]) == (0 if number > 0 else 2)
    assert [run.steps for run in begun] == [number] * (number > 0)


@pytest.mark.parametrize("text", ["1.5", "1e-3", "1e400", "1e999999999", "k", "", "1__0", "0x10", "nan", "10kk"])
def test_what_is_no_whole_number(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "lowwater", "--agent", "random", "--steps", text]) == 2
    assert f"--steps takes a whole number, not {text!r}" in capsys.readouterr().err


def test_numbers_in_groups_of_settings_and_in_lists() -> None:
    found = _parse(_make_args_type("drrn", ""), "train", ["--q.capacity", "20k", "--q.learning-rate", "2e-3"])
    assert (found.settings.q.capacity, found.settings.q.learning_rate) == (20_000, 0.002)
    sweep = importlib.import_module("xtx.cli.training.sweep")
    assert _parse(sweep.Args, "sweep", ["--seeds", "0", "1e1"]).seeds == (0, 10)


@dataclass(frozen=True)
class Inner:
    """Inside."""

    deep: bool = True
    """Whether it is deep."""


@dataclass(frozen=True)
class Example:
    """An example.

    With two paragraphs.
    """

    USUAL: ClassVar = ("second",)

    place: Annotated[Positional[str], arg(metavar="PLACE")]
    """Where."""
    first: Literal["a", "b"] | None = None
    """The first."""
    second: float = 0.25  # The second, in a comment.
    inner: Inner = field(default_factory=Inner)


def test_two_levels_of_an_example() -> None:
    first = build_help(Example, "example", complete=False, width=60)
    assert first.startswith("usage: xtx example PLACE [OPTIONS]\n\nAn example.\n\nWith two paragraphs.\n")
    assert "--second X              The second, in a comment." in first and "(default: 0.25)" in first
    assert "--first" not in first and "--inner" not in first and "Show all options (3)." in first
    everything = build_help(Example, "example", complete=True, width=60)
    assert "--first a|b" in everything
    assert "--inner.deep, --inner.no-deep" in everything and "(default: on)" in everything
