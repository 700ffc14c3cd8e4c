"""Valid actions for a random agent: Jericho's own `get_valid_actions` beside that of the drop-in `FrotzEnv`.

    python benchmarks/jericho_dropin.py [GAME...] [--steps N] [--parallel] [--spacy]

Both are asked in the same states, in one run: a random agent plays from places along the walkthrough, and each new
state goes to both. Nothing is stored ahead (no atlas). Times are of the processor, all processes together, and of the
clock.

Jericho finds the things in sight with spaCy's model en_core_web_sm, which has to be downloaded. Here the words of
`look` and `inventory` that the game's parser knows take its place, which costs Jericho no time. With --spacy each text
also goes through a spaCy pipeline with that model's layers and random weights: it takes the time and finds nothing.
Everything else is Jericho's own. By default Jericho's fastest code runs in
one process (`use_ctypes`) and xtx searches with one thread, so that the clock compares the same; with --parallel both
use all processors.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jericho
import numpy as np

from xtx.games import jericho as frotz_env
from xtx.games.catalog.known_games import find_story

INFOCOM = ("zork1", "zork3", "enchanter", "wishbringer")
INFORM = ("detective", "library", "deephome")
MOVES = 3
"""Moves of the random agent from each place."""
_FUNCTION_WORDS = frozenset(
    [
        "a",
        "an",
        "the",
        "this",
        "that",
        "some",
        "and",
        "or",
        "of",
        "in",
        "on",
        "at",
        "to",
        "from",
        "with",
        "by",
        "for",
        "is",
        "are",
        "you",
        "your",
        "it",
        "here",
    ]
)


def extract_names(env: Any, parse: Callable[[str], object]) -> Callable[[str], set[tuple[str, str]]]:
    """Stands for Jericho's `extract_objs`, which `parse`s each text."""
    words = {word.word: "ADJ" if word.is_adj and not word.is_noun else "NOUN" for word in env.get_dictionary()}
    longest = max(map(len, words))

    def extract(text: str) -> set[tuple[str, str]]:
        parse(text)
        found = set(re.findall(r"[a-z][a-z'-]*", text.lower())) - _FUNCTION_WORDS
        return {(word, words[word[:longest]]) for word in found if word[:longest] in words}

    return extract


def make_untrained_pipeline() -> Any:
    """A spaCy pipeline with the layers of en_core_web_sm and random weights. Jericho's package requires spaCy."""
    import spacy

    columns = {"NORM": 5000, "PREFIX": 1000, "SUFFIX": 2500, "SHAPE": 2500, "SPACY": 50, "IS_SPACE": 50}
    embed: dict[str, object] = {
        "@architectures": "spacy.MultiHashEmbed.v2",
        "width": 96,
        "attrs": list(columns),
        "rows": list(columns.values()),
        "include_static_vectors": False,
    }
    encode: dict[str, object] = {
        "@architectures": "spacy.MaxoutWindowEncoder.v2",
        "width": 96,
        "depth": 4,
        "window_size": 1,
        "maxout_pieces": 3,
    }
    words: dict[str, object] = {"@architectures": "spacy.Tok2Vec.v2", "embed": embed, "encode": encode}
    shared: dict[str, object] = {"@architectures": "spacy.Tok2VecListener.v1", "width": 96, "upstream": "*"}
    transitions: dict[str, object] = {
        "@architectures": "spacy.TransitionBasedParser.v2",
        "extra_state_tokens": False,
        "hidden_width": 64,
        "maxout_pieces": 2,
        "use_upper": True,
    }
    parts: dict[str, tuple[dict[str, object], list[str]]] = {
        "tok2vec": (words, []),
        "tagger": ({"@architectures": "spacy.Tagger.v2", "tok2vec": shared}, ["NN", "NNS", "JJ", "VB", "DT", "IN"]),
        "parser": (
            {**transitions, "state_type": "parser", "tok2vec": shared},
            ["nsubj", "dobj", "det", "prep", "ROOT"],
        ),
        "ner": ({**transitions, "state_type": "ner", "tok2vec": words}, ["PERSON", "ORG", "GPE", "DATE"]),
    }
    pipeline: Any = spacy.blank("en")
    for name, (model, labels) in parts.items():
        part = pipeline.add_pipe(name, config={"model": model})
        for label in labels:
            part.add_label(label)
    pipeline.initialize()
    pipeline("Once, since the first text takes longer.")
    return pipeline


def processor_seconds() -> float:
    """Processor time of this process and of all that it started."""
    own, total = os.times(), time.process_time()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                    total += time.clock_gettime(_processor_clock(int(folder.name)))
            except OSError:
                continue
    return own.children_user + own.children_system + total


def _processor_clock(pid: int) -> int:
    """The clock of a process's processor time, as clock_getcpuclockid(3) gives it on Linux."""
    return ~pid << 3 | 2


def timed(call: Callable[[], list[str]]) -> tuple[list[str], float, float]:
    """What a call returns, with its seconds on the clock and on processors."""
    began, worked = time.perf_counter(), processor_seconds()
    found = call()
    return found, time.perf_counter() - began, processor_seconds() - worked


def random_states(env: Any, player: Any, count: int) -> Iterator[tuple[Any, ...]]:
    """New states of a random agent that begins at places along the walkthrough, so that it meets more than the first
    rooms; `player` names its actions, in states that were given out before."""
    random, seen = np.random.default_rng(0), set()
    walkthrough = env.get_walkthrough()
    begins = np.linspace(0, 0.8 * len(walkthrough), max(1, count // MOVES)).astype(int)
    for begin in begins:
        env.reset()
        for command in walkthrough[:begin]:
            env.step(command)
        for _ in range(MOVES):
            state, key = env.get_state(), env.get_world_state_hash()
            if key not in seen:
                seen.add(key)
                yield state
            player.set_state(state)
            env.set_state(state)
            _, _, done, _ = env.step(str(random.choice(player.get_valid_actions() or ["wait"])))
            if done:
                break


def measure(game: str, steps: int, parallel: bool, parse: Callable[[str], object]) -> dict[str, float]:
    """Seconds for each new state of a random agent, Jericho's and ours."""
    path = str(find_story(game).path)
    theirs: Any = jericho.FrotzEnv(path)
    jericho.util.extract_objs = extract_names(theirs, parse)
    theirs.reset()
    began = time.perf_counter()
    ours = frotz_env.FrotzEnv(path, search_threads=None if parallel else 1)
    ours.reset()
    ours.get_valid_actions()
    start = time.perf_counter() - began
    rows: list[tuple[float, float, float, float, int, int]] = []
    for state in random_states(theirs, ours, steps):
        ours.set_state(state)
        actions, wall, work = timed(ours.get_valid_actions)
        theirs.set_state(state)
        found, slow_wall, slow_work = timed(lambda: theirs.get_valid_actions(use_parallel=parallel))
        rows.append((slow_wall, wall, slow_work, work, len(found), len(actions)))
    steps = len(rows)
    wall_j, wall_x, work_j, work_x, found_j, found_x = (sum(column) for column in zip(*rows, strict=True))
    ours.close()
    if parallel:
        theirs.pool.terminate()
    return {
        "jericho ms": 1000 * wall_j / steps,
        "xtx ms": 1000 * wall_x / steps,
        "times as fast (clock)": wall_j / wall_x,
        "times as fast (processor)": work_j / work_x,
        "median (clock)": statistics.median(row[0] / row[1] for row in rows),
        "actions jericho": found_j / steps,
        "actions xtx": found_x / steps,
        "start s": start,
    }


def main() -> None:
    """Prints one line for each game."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("games", nargs="*", default=[*INFORM, *INFOCOM])
    parser.add_argument("--steps", type=int, default=24, help="new states of each game, three from each place")
    parser.add_argument("--parallel", action="store_true", help="both use all processors")
    parser.add_argument("--spacy", action="store_true", help="Jericho also takes spaCy's time")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    parse = make_untrained_pipeline() if args.spacy else str
    for number, game in enumerate(args.games):
        row = measure(game, args.steps, args.parallel, parse)
        if not number:
            print("game".ljust(12), *row, sep="  ")
        cells = (f"{value:.1f}".rjust(len(name)) for name, value in row.items())
        print(game.ljust(12), *cells, sep="  ", flush=True)


if __name__ == "__main__":
    main()
