"""Version numbers of the search for valid actions. Runs record them, and reports tell runs of other versions."""

from __future__ import annotations

SEARCH_VERSION = 9
"""Changes whenever the same state may give other actions: part of every key in the atlas."""
SURVEY_VERSION = 14
"""Changes whenever the canonical state does: part of every key in the atlas."""
WHOLE_VERSION = 28
"""Changes whenever the same state may give other candidates of the whole dictionary: part of the atlas's keys that
depend on them."""

DISCOVERY_VERSION = 3
"""Changes whenever something else may be found out about a story that was not added: part of the file's name in which
it is kept."""


def search_versions() -> dict[str, str]:
    """The present versions by name, as runs record them."""
    return {"search": str(SEARCH_VERSION), "survey": str(SURVEY_VERSION), "whole": str(WHOLE_VERSION)}
