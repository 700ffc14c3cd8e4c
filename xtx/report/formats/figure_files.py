"""Under which names the plots of a report are written as files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from xtx.report.pages.document import Block, Figure, Gallery, Section


def name_figures(blocks: Sequence[Block]) -> list[tuple[str, Figure]]:
    """Every plot with the name of its file, without ending: by game, agent and seed, each name once."""
    taken: dict[str, int] = {}
    named = []
    for figure in _list_figures(blocks):
        name = re.sub(r"[^\w.=+]+", "-", figure.name.replace("*", "-star")).strip("-.")
        taken[name] = taken.get(name, 0) + 1
        named.append((f"{name}-{taken[name]}" if taken[name] > 1 else name, figure))
    return named


def _list_figures(blocks: Sequence[Block]) -> Iterator[Figure]:
    for block in blocks:
        if isinstance(block, Section):
            yield from _list_figures(block.blocks)
        elif isinstance(block, Gallery):
            yield from block.figures
