"""`xtx games atlas`: how much the atlas holds, and how often it helped; taking it to another machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from xtx.core import UserError
from xtx.games.atlas import Atlas, default_path
from xtx.games.packed import add_packed, read_packed, write_packed


@dataclass(frozen=True)
class Args:
    """Shows the atlas: what was found out about the states of games, kept so that it is never found out twice.

    Packed, it is one small file that can be taken to another machine and added to what is known there.
    """

    atlas: Annotated[Path | None, arg(metavar="PATH")] = None
    """Folder of the atlas; if not given, in the user's cache folder."""
    pack: Annotated[Path | None, arg(metavar="FILE")] = None
    """Write all that it holds to this file."""
    add: Annotated[Path | None, arg(metavar="FILE")] = None
    """Take in what such a file holds and the atlas does not."""


def run(args: Args) -> None:
    """Packs or adds what is asked for; prints size and hit rate."""
    path = args.atlas or default_path()
    if args.pack is not None and args.add is not None:
        raise UserError("--pack and --add: one after the other, please")
    if path.is_file():
        raise UserError(f"{path} is a file; --atlas names the folder of an atlas")
    if args.add is None and not (path / "data.mdb").exists():
        nothing = f"there is no atlas at {path} yet: it is made when a game is first searched"
        if args.pack is not None:
            raise UserError(nothing)
        print(nothing)
        return
    if args.pack is not None and args.pack.resolve().parent == path.resolve():
        raise UserError(f"{args.pack} would lie in the atlas's own folder; name a file elsewhere")
    found = read_packed(args.add) if args.add is not None else {}
    with Atlas(path) as atlas:
        if args.add is not None:
            print(f"{add_packed(atlas, found):,} of {len(found):,} entries were new")
        if args.pack is not None:
            print(f"packing into {args.pack} ...", flush=True)
            entries, size = write_packed(atlas, args.pack)
            print(f"{entries:,} entries in {size / 1e6:.1f} MB; take them in with: xtx games atlas --add {args.pack}")
        now = atlas.statistics()
    met = now.hits + now.misses
    known = f", {100 * now.hits / met:.1f} % of them known" if met else ""
    print(f"{path}\n{now.entries:,} entries in {now.bytes / 1e6:.1f} MB on disk; games came to {met:,} states{known}")
