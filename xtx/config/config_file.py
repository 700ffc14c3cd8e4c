"""Reads and writes config.json of a run folder. Every key must be known; two configs can be compared key by key."""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

import msgspec

from xtx.config.settings import RunConfig

MAX_STEPS = 2**53
"""Largest number of steps: JSON readers and float64 are exact up to here."""
MAX_ENVS = 4096
"""Limits the envs of one run. Each takes some megabytes, so more would exhaust the memory of most machines."""
_LIMITS = {"steps": (1, MAX_STEPS), "num_envs": (1, MAX_ENVS), "log_every": (1, MAX_STEPS), "seed": (0, 2**31 - 1)}
_ADVICE = "put it back from a copy, or start the run again in another folder"
_MISSING = object()


@dataclass(frozen=True)
class OldKey:
    """What replaces a key that earlier versions wrote. A key is a path such as `settings.q.gamma`."""

    new: str = ""
    """Its present name; empty if the setting no longer exists."""
    only: object = None
    """For a setting that no longer exists: the value that means today's behaviour. Runs with another cannot
    continue."""


OLD_KEYS: dict[str, OldKey] = {
    "games": OldKey("num_envs"),
    "settings.halving": OldKey(only=False),  # of XTX, for some hours: how an own target was drawn
    "settings.imitation.bfloat16": OldKey(only=False),  # 20 % of imitation training, 3 % of a run on a GPU
    "settings.imitation.length_buckets": OldKey(only=True),  # batches are always split by length
}
"""The keys of earlier versions."""


class ConfigError(ValueError):
    """A config.json that cannot be used. The text says why; callers put the file's name before it."""


def decode_config(content: bytes) -> RunConfig:
    """Decode the content of a config.json. Raises `ConfigError`.

    The keys of `settings` are the agent's, so they are checked where that is known: see `replace_old_settings`.
    """
    try:
        found = json.loads(content, object_pairs_hook=_refuse_duplicates)
        if not isinstance(found, dict):
            raise ValueError("it holds no settings")
        # Text that is not Unicode could be put into no report; the path of a story may have such bytes.
        json.dumps({name: value for name, value in found.items() if name != "game"}, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:  # also bytes that are not UTF-8, and integers of thousands of digits
        raise ConfigError(f"is damaged ({error}); {_ADVICE}") from None
    known = [field.name for field in fields(RunConfig)]
    for name in list(found):
        if name not in known:
            _replace_old_key(found, name, name, known)
    try:
        config = msgspec.convert(found, RunConfig)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise ConfigError(f"is damaged ({error}); {_ADVICE}") from None
    try:
        check_numbers(config)
    except ValueError as error:
        raise ConfigError(f"cannot be used ({error}); correct it") from None
    return config


def rename_old_keys(config: dict[str, Any]) -> None:
    """Rename the keys of a config, as JSON, that had another name in earlier versions. Other keys stay as they are.

    Raises `ConfigError` for a key that no longer exists, with a value other than today's behaviour.
    """
    for name in [name for name in config if name in OLD_KEYS]:
        _replace_old_key(config, name, name, ())


def encode_config(config: RunConfig) -> str:
    """Return the content of config.json for a config."""
    return json.dumps(make_plain(config), indent=2) + "\n"


def make_plain(config: RunConfig) -> dict[str, Any]:
    """Return a config as it is written: without the key of earlier versions, unless it is set."""
    plain = asdict(config)
    if not config.wide_grammar:
        del plain["wide_grammar"]
    return plain


def check_resumable(config: RunConfig) -> None:
    """Raise `ConfigError` for a run that was begun with what no longer exists, other than in its agent's settings."""
    if config.wide_grammar:
        raise ConfigError("has the key 'wide_grammar' of an earlier version, and can go on here only with false")


def check_numbers(config: RunConfig) -> None:
    """Raise `ValueError` with the name of the first number of a config that is out of range."""
    for name, (least, most) in _LIMITS.items():
        value = getattr(config, name)
        if not least <= value <= most:
            upper = f" to {most}" if most < MAX_STEPS or value > most else ""
            raise ValueError(f"{name} takes a number from {least}{upper}, not {_shorten(value)}")


def replace_old_settings(settings: Mapping[str, object], known: Any, *, for_training: bool = True) -> dict[str, object]:
    """Rename the keys of settings of an earlier version. Raises `ConfigError` for unknown keys.

    known: an instance of the agent's settings, whose fields are the known keys. for_training: also raise for settings
    that no longer exist, with a value other than today's behaviour; how an agent was trained does not matter where it
    only plays.
    """
    found = copy.deepcopy(dict(settings))
    _check_level(found, known, "settings.", found, for_training)
    return found


def _check_level(
    level: dict[str, Any], known: Any, prefix: str, settings: dict[str, object], for_training: bool
) -> None:
    """Check and rename the keys of one level of settings, and of the levels in it."""
    if not is_dataclass(known):
        return
    names = [field.name for field in fields(known)]
    for name in list(level):
        if name not in names:
            _replace_old_key(level, name, prefix + name, names, settings, for_training)
        elif isinstance(level[name], dict):
            _check_level(level[name], getattr(known, name), f"{prefix}{name}.", settings, for_training)


def _replace_old_key(
    level: dict[str, Any],
    name: str,
    key: str,
    known: Iterable[str],
    settings: dict[str, object] | None = None,
    for_training: bool = True,
) -> None:
    """Remove an old key from its level, and store its value under the present name. Raises `ConfigError` if the key is
    not one of an earlier version, or its value no longer possible `for_training`."""
    old = OLD_KEYS.get(key)
    if old is None:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]!r}? Correct it" if close else f"delete it, or use one of: {', '.join(known)}"
        raise ConfigError(f"has an unknown key {_shorten(key)!r}; {hint}")
    value = level.pop(name)
    if old.new:
        *parents, last = old.new.split(".")
        place: Any = level if settings is None else {"settings": settings}
        for parent in parents:
            place = place.setdefault(parent, {})
        if place.setdefault(last, value) != value:
            raise ConfigError(f"has {old.new!r} and its earlier name {key!r} with another value; delete {key!r}")
    elif value != old.only and for_training:
        raise ConfigError(
            f"has the key {key!r} of an earlier version, and can go on here only with {json.dumps(old.only)}"
        )


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dictionary; raises `ValueError` if a key occurs twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {_shorten(twice)!r} is there twice")
    return found


# --- comparing two configs --------------------------------------------------------------------------------------


def list_differences(before: str, now: RunConfig) -> list[str]:
    """Return the differences of a config from an earlier one, as text; empty if there are none.

    before: the earlier config, as `dump_config` returned it, maybe of an earlier version: a key of RunConfig that it
    lacks had its default value. Raises `ConfigError` if it is not a config.
    """
    old = flatten(make_plain(decode_config(before.encode("utf-8", "replace"))))
    new = flatten(json.loads(dump_config(now)))
    differences = []
    for key in [*old, *(key for key in new if key not in old)]:
        was, is_now = old.get(key, _MISSING), new.get(key, _MISSING)
        if was is _MISSING:
            differences.append(f"{key} was not there and is {_show(is_now)}")
        elif is_now is _MISSING:
            differences.append(f"{key} was {_show(was)} and is not there")
        elif was != is_now:
            differences.append(f"{key} was {_show(was)} and is {_show(is_now)}")
    return differences


def dump_config(config: RunConfig) -> str:
    """Return a config as one line of JSON, for `list_differences`."""
    return json.dumps(make_plain(config))


def flatten(config: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return a nested dictionary as one level, with paths such as `settings.q.gamma` as keys."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= flatten(value, f"{above}{name}.") if isinstance(value, dict) else {above + name: value}
    return found


def _show(value: object) -> str:
    return _shorten(value if isinstance(value, str) else json.dumps(value))


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
