"""What is known of a story before it runs: name, points, walkthrough, and the templates of its grammar.

It comes from Jericho's bindings or, for a story that Jericho does not know, from the story's profile.
"""

from __future__ import annotations

import contextlib
from functools import cached_property

import jericho
from jericho.template_action_generator import TemplateActionGenerator

from xtx.games.catalog.profile import find_overshadowed_readings, find_unlisted_templates
from xtx.games.catalog.story_file import Story
from xtx.games.zmachine.story_memory import Header, read_dictionary

_SHORT_DIRECTIONS = {"northeast": "ne", "northwest": "nw", "southeast": "se", "southwest": "sw"}
"""Some of Infocom's stories know these by their short names only."""


class StoryBindings:
    """What Jericho or the profile says of a story."""

    def __init__(self, story: Story, header: Header, env: jericho.FrotzEnv) -> None:
        self._story = story
        self._profile = story.profile
        self._header = header
        self._env = env

    @property
    def name(self) -> str:
        return str(self._env.bindings["name"]) if self._profile is None else self._profile.name

    @property
    def max_score(self) -> int:
        return int(self._env.get_max_score()) if self._profile is None else self._profile.max_score

    @property
    def walkthrough(self) -> tuple[str, ...]:
        if self._profile is not None:
            return self._profile.walkthrough
        return tuple(str(self._env.bindings["walkthrough"]).split("/")) if "walkthrough" in self._env.bindings else ()

    @property
    def walkthrough_seed(self) -> int:
        """The emulator seed under which the walkthrough works."""
        return int(self._env.bindings["seed"]) if self._profile is None else self._profile.seed

    @cached_property
    def templates(self) -> tuple[str, ...]:
        """The action templates of the game's grammar, one verb each, with OBJ for an object's name."""
        if self._profile is None:
            return tuple(self._env.act_gen.templates)
        bindings = {
            "name": self._profile.name,
            "grammar": ";".join(self._profile.grammar),
            "max_word_length": self._profile.word_length,
        }
        dictionary = read_dictionary(self._story.content, self._header)
        return tuple(
            short
            if (short := _SHORT_DIRECTIONS.get(t)) and not dictionary.has_word(t) and dictionary.has_word(short)
            else t
            for t in TemplateActionGenerator(bindings).templates
        )

    @cached_property
    def unlisted(self) -> tuple[str, ...]:
        """Templates of the story's own grammar that Jericho's templates do not stand for, one verb each."""
        if self._profile is not None:
            return ()
        bindings = self._env.bindings
        listed = [template for template in str(bindings["grammar"]).split(";") if template]
        missing = list(find_overshadowed_readings(listed, self.templates))
        with contextlib.suppress(ValueError):  # a grammar that is not Inform's
            missing += find_unlisted_templates(self._story.content, listed)
        templates = TemplateActionGenerator({**bindings, "grammar": ";".join(missing)}).templates
        return tuple(t for t in templates if t not in self.templates)

    def translate(self, command: str) -> str:
        """Return the story's own word for a command such as "look", where it does not know the English."""
        return command if self._profile is None else self._profile.spoken.get(command, command)
