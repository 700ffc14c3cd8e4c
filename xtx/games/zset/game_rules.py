"""What counts as a change and as the end of a game, for the set-execution engine: found out from Jericho, which has it
in functions of its own for each game."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from xtx.games.emulator.frotz import Emulator


@dataclass(frozen=True)
class Rules:
    """What a game's verdicts depend on beside its story file; plain data, found once for each story."""

    set_mask: bytes
    clear_mask: bytes
    wanderers: tuple[int, ...]
    first_object: int
    small: bool
    objects: int
    score: tuple[int, int]
    """Address and size of the score; size 0 where there is none."""
    special: tuple[int, ...] = ()
    """RAM bytes that Jericho watches, in its order."""
    final: tuple[int, ...] = ()
    """RAM bytes by which Jericho sees that the game has ended."""
    final_texts: tuple[tuple[bytes, int], ...] = ()
    """Texts by which it does: 1 for those that mean the end, 2 for a victory, 0 where the text alone does not say."""
    cuts: tuple[bytes, ...] = ()
    """Signs at which Jericho may cut a text off before it looks for the end of the game in it."""
    ignores: tuple[int, int, int] = (0, 0, 0)
    """Addresses of Jericho's functions that say which moves, set and cleared attributes do not count; 0 for none."""

    @classmethod
    def of(cls, emulator: Emulator) -> Rules:
        """The rules of the story in an emulator. Those of its functions must outlive the engine."""
        change, header, scores = emulator.world_memory.change, emulator.header, emulator.world_memory.score_addresses
        library = emulator._lib
        count = max(0, library.get_special_ram_size())
        watched = ctypes.POINTER(ctypes.c_uint16).in_dll(library, "special_ram_addrs")
        functions = (library.ignore_moved_obj, library.ignore_attr_diff, library.ignore_attr_clr)
        final, texts = _ends(emulator)
        return cls(
            set_mask=change.set_mask.tobytes(),
            clear_mask=change.clear_mask.tobytes(),
            wanderers=tuple(change.wanderers.tolist()),
            first_object=header.first_object,
            small=header.small,
            objects=emulator.tree.count,
            score=(min(scores, default=0), len(scores)),
            special=tuple(watched[i] for i in range(count)),
            final=final,
            final_texts=texts,
            cuts=tuple(sign for sign in _CUTS if _is_cut_at(emulator, sign)),
            ignores=tuple(ctypes.cast(f, ctypes.c_void_p).value or 0 for f in functions),  # type: ignore[arg-type]
        )


_CUTS = b">", b"["
"""Where Jericho cuts texts off, in some games or others."""


def _is_cut_at(emulator: Emulator, sign: bytes) -> bool:
    """Whether a text is cut off at a sign, whatever stands before and behind it."""
    around = ((b"\nYou fall.\n", b"x"), (b"\nYou fall.\n\n", b"  x"), (b"\nYou ", b" "))
    return any(
        "THE END" not in emulator.clean_screen(before + sign + behind + b"THE END\n\n") for before, behind in around
    )


def _ends(emulator: Emulator) -> tuple[tuple[int, ...], tuple[tuple[bytes, int], ...]]:
    """By which RAM bytes and by which texts Jericho sees that the game has ended.

    Its functions look for texts that are in its own library: every text in there is shown to them."""
    library = emulator._lib
    state = emulator.save()

    def ended(text: bytes) -> int:
        library.set_narrative_text(text)
        return 1 if library.game_over() > 0 else 2 if library.victory() > 0 else 0

    texts = set()
    for text in set(re.findall(rb"[\x20-\x7e\n\r\t]{3,2000}(?=\0)", _locate_jericho_library().read_bytes())):
        if ended(text):
            # The compiler stores a text that is the end of another one only once: cut off what does not matter.
            while len(text) > 1 and ended(text[1:]):
                text = text[1:]
            while len(text) > 1 and ended(text[:-1]):
                text = text[:-1]
            texts.add(text)
    ram, found = emulator.ram, []
    before = (library.game_over(), library.victory()) if not ended(b"") else None
    for address in range(64, emulator.header.dynamic_size):
        ram[address] ^= 0xFF
        if before is not None and (library.game_over(), library.victory()) != before:
            found.append(address)
        ram[address] ^= 0xFF
    # A text says by itself what it means if it is the same wherever it stands and nothing in memory has a say.
    alone = not found and before is not None
    meanings = {t: {ended(t), ended(b"You fall.\n" + t), ended(t + b"\n\n>"), ended(b" " + t + b" ")} for t in texts}
    emulator.restore(state)
    return tuple(found), tuple(sorted((t, min(m) if alone and len(m) == 1 else 0) for t, m in meanings.items()))


def _locate_jericho_library() -> Path:
    # Jericho loads a copy that it deletes at once.
    spec = find_spec("jericho")
    if spec is None or spec.origin is None:
        raise ImportError("jericho is not installed")
    return Path(spec.origin).parent / "libfrotz.so"
