"""What tells two profiles apart in the keys of the atlas."""

from __future__ import annotations

import msgspec

from xtx.games.profile import Profile

_LATER_FIELDS = {"printed_score": "", "opening": (), "prompt": None}
"""Fields that earlier versions did not have, with what stands for them there."""
_NO_PART_OF_PLAY = ("findings", "verified")


def profile_key(profile: Profile) -> bytes:
    """All of a profile that bears on how a game goes. Without fields that are as if they
    were not there, so that what earlier versions of xtx found is still found."""
    fields = msgspec.to_builtins(profile)
    for name, absent in _LATER_FIELDS.items():
        if getattr(profile, name) == absent:
            del fields[name]
    for name in _NO_PART_OF_PLAY:
        del fields[name]
    return msgspec.msgpack.encode(fields)
