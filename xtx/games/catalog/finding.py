"""One fact that discovery found out about a story, with how sure it is."""

from __future__ import annotations

from typing import Literal

import msgspec

Sureness = Literal["sure", "likely", "guessed", "not found"]
"""How good a finding is."""


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that was found out about a story, for people."""

    what: str
    """Such as "score"."""
    value: str
    """In words and numbers; "not found" for nothing."""
    sureness: Sureness
    how: str
    """What shows it, in a few words."""
