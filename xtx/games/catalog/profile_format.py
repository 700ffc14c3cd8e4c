"""Profiles as JSON, and as a part of the atlas's keys. Neither holds fields that earlier versions of xtx did not have
where those say nothing, so that old files and keys stay as they were."""

from __future__ import annotations

from typing import Any

import msgspec

from xtx.games.catalog.profile import Profile

_LATER_FIELDS: dict[str, Any] = {
    "printed_score": "", "opening": (), "prompt": None, "spoken": {}, "findings": (), "verified": True,
}  # fmt: skip
"""Fields that earlier versions did not have, with what stands for them there."""
_NO_PART_OF_PLAY = ("findings", "verified")


def encode_profile(profile: Profile) -> bytes:
    """A profile as JSON that people can read, without what is as in profiles of earlier versions."""
    return msgspec.json.format(msgspec.json.encode(make_profile_fields(profile)), indent=1) + b"\n"


def make_profile_fields(profile: Profile) -> dict[str, Any]:
    """Return the fields of a profile, without those that earlier versions did not have where they say nothing."""
    fields: dict[str, Any] = msgspec.to_builtins(profile)
    for name, absent in _LATER_FIELDS.items():
        if getattr(profile, name) == absent:
            del fields[name]
    return fields


def make_profile_key(profile: Profile) -> bytes:
    """All of a profile that bears on how a game goes, for the keys of the atlas."""
    fields = {name: value for name, value in make_profile_fields(profile).items() if name not in _NO_PART_OF_PLAY}
    return msgspec.msgpack.encode(fields)
