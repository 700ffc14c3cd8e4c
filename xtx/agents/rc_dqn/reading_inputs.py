"""States and actions in the form that RC-DQN stores and its network reads: text ids, questions, object positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from xtx.agents.rc_dqn.action_templates import MARK, OBJECT, Passage, TemplateQuestion
from xtx.agents.state_ids import UNKNOWN, StateIds
from xtx.config.settings import RcDqnSettings
from xtx.core import Observation
from xtx.networks.reading_comprehension import EncodedReading
from xtx.text.text_table import split

Tokens = tuple[int, ...]


class ReadState(NamedTuple):
    """A state as ids: that of its whole text and that of its list of actions."""

    text: int
    actions: int


class StateQuestions(NamedTuple):
    """The questions that a list of actions asks of one text."""

    text: int
    questions: list[Tokens]
    """The distinct questions, as tokens."""
    which: list[int]
    """For each action, the index of its question."""
    first: list[Tokens]
    """For each action, the positions of its first object in the text, counted from the text's start mark: 0 for an
    object that the text does not mention, those of all segment marks if the action has no object."""
    second: list[Tokens]
    """The same for the second object, but with the last position if the text does not mention it."""


def format_observation(observation: Observation) -> str:
    """Return the text of an observation: look | inventory | narration."""
    return f"{observation.look or UNKNOWN} {MARK} {observation.inventory or UNKNOWN} {MARK} {observation.text}"


def prepend_past(text: str, past: Sequence[str], longest: int) -> str:
    """Put earlier observations before a text; drop the oldest words of them beyond `longest` words in all."""
    words = split("".join(f"{passage} {MARK} " for passage in past))
    room = max(0, longest - len(split(text)))
    return " ".join((*words[len(words) - min(room, len(words)) :], text))


class PassageReader:
    """Turns texts and actions into questions and object positions, with a cache."""

    def __init__(self, settings: RcDqnSettings, state_ids: StateIds) -> None:
        self._state_ids = state_ids
        self._max_actions = settings.most_actions
        self._longest_question = settings.longest_question
        self.words = settings.text.longest - 2
        """Longest text in words, without its start and end marks."""
        self._questions: dict[ReadState, StateQuestions] = {}
        self._single: dict[tuple[int, int], StateQuestions] = {}
        state_ids.texts.vocabulary.id(OBJECT)

    @contextmanager
    def restore_afterwards(self) -> Iterator[None]:
        """Delete the states that are met in the block, and their questions, when it ends."""
        asked, single = len(self._questions), len(self._single)
        with self._state_ids.restore_afterwards():
            try:
                yield
            finally:
                while len(self._questions) > asked:
                    self._questions.popitem()
                while len(self._single) > single:
                    self._single.popitem()

    def clear_cache(self) -> None:
        """Clear the cache: text ids are about to be given to other texts."""
        self._questions, self._single = {}, {}

    def find_passage(self, text: int) -> Passage:
        """Return a text with an index of its words."""
        return Passage(self._state_ids.texts.text(text), self.words)

    def make_questions(self, state: ReadState) -> StateQuestions:
        """Return the questions of the state's first `most_actions` actions."""
        known = self._questions.get(state)
        if known is None:
            actions = self._state_ids.action_sets.actions(state.actions)[: self._max_actions]
            known = self._questions[state] = self._make_questions(state.text, actions.tolist())
        return known

    def make_single_questions(self, text: int, action: int) -> StateQuestions:
        """Return the question of one action."""
        known = self._single.get((text, action))
        if known is None:
            known = self._single[text, action] = self._make_questions(text, [action])
        return known

    def _make_questions(self, text: int, actions: Sequence[int]) -> StateQuestions:
        passage = self.find_passage(text)
        questions = [passage.make_question(self._state_ids.texts.text(action)) for action in actions]
        tokens = [self._encode_text(question) for question in questions]
        distinct = {question: number for number, question in enumerate(dict.fromkeys(tokens))}
        last = len(passage.words) + 1  # the end mark; the start mark has place 0
        marks = _count_from_start(passage.find([MARK])) or (0,)  # every observation has two
        return StateQuestions(
            text,
            list(distinct),
            [distinct[question] for question in tokens],
            [_count_from_start(q.first) or (0,) if q.objects else marks for q in questions],
            [_count_from_start(q.second) or (last,) if len(q.objects) > 1 else marks for q in questions],
        )

    def _encode_text(self, question: TemplateQuestion) -> Tokens:
        # A question must have a token; an action without any word has never been met, but is possible.
        words = question.words[: self._longest_question] or (OBJECT,)
        return tuple(map(self._state_ids.texts.vocabulary.id, words))

    def build_reading(self, asked: Sequence[StateQuestions]) -> EncodedReading:
        """Build the network's input for all these actions, concatenated; each distinct text, question and pair once."""
        texts: dict[int, int] = {}
        questions: dict[Tokens, int] = {}
        pairs: dict[tuple[int, int], int] = {}
        action_pair: list[int] = []
        for a in asked:
            text = texts.setdefault(a.text, len(texts))
            numbers = [questions.setdefault(question, len(questions)) for question in a.questions]
            places = [pairs.setdefault((text, number), len(pairs)) for number in numbers]
            action_pair.extend(places[which] for which in a.which)
        tokens, offsets = self._state_ids.texts.rows.gather(np.array(list(texts)))
        pair = np.array(list(pairs), np.int64).reshape(-1, 2)
        first, firsts = _pad([places for a in asked for places in a.first])
        second, seconds = _pad([places for a in asked for places in a.second])
        return EncodedReading(
            torch.from_numpy(tokens.astype(np.int64)),
            torch.from_numpy(np.diff(offsets)),
            torch.tensor([token for question in questions for token in question]),
            torch.tensor([len(question) for question in questions]),
            *map(torch.from_numpy, (pair[:, 0].copy(), pair[:, 1].copy(), np.array(action_pair, np.int64))),
            *map(torch.from_numpy, (first, _compute_weights(firsts), second, _compute_weights(seconds))),
        )


def _count_from_start(places: Tokens) -> Tokens:
    """Convert positions of words to positions of tokens, which begin with the start mark."""
    return tuple(place + 1 for place in places)


def _pad(rows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows padded with zeros, [n, L], and their lengths, [n]."""
    lengths = np.array([len(row) for row in rows], np.int64)
    table = np.zeros((len(rows), lengths.max(initial=1)), np.int64)
    table[np.arange(table.shape[1]) < lengths[:, None]] = [number for row in rows for number in row]
    return table, lengths


def _compute_weights(counts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the weights of a mean over `count` elements: 1 / count for the first `count`, then 0. [n, F]"""
    weights: NDArray[np.float32] = (
        (np.arange(counts.max(initial=1)) < counts[:, None]) / counts[:, None]
    ).astype(np.float32)  # fmt: skip
    return weights
