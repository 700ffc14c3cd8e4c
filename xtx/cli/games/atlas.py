"""`xtx games atlas`: how much the atlas holds, and how often it helped; taking it to another machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from xtx.core import UserError
from xtx.games.atlas.atlas_process import ProcessDiedError, run_task
from xtx.games.atlas.store import find_default_path
from xtx.terminal.shell_command import format_command


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
    verify: bool = False
    """Read all of it and say whether it is whole, and what to do if it is not."""


def run(args: Args) -> int:
    """Packs, adds or verifies what is asked for; prints size and hit rate. 0, or 2 if the atlas is not whole."""
    path = args.atlas or find_default_path()
    asked = [name for name in ("pack", "add", "verify") if getattr(args, name)]
    if len(asked) > 1:
        raise UserError(f"--{asked[0]} and --{asked[1]}: one after the other, please")
    if path.is_file():
        raise UserError(f"{path} is a file; --atlas names the folder of an atlas")
    if args.add is None and not (path / "data.mdb").exists():
        nothing = f"there is no atlas at {path} yet: it is made when a game is first searched"
        if asked:
            raise UserError(nothing)
        print(nothing)
        return 0
    if args.verify:
        return _verify(path)
    if args.pack is not None and os.path.dirname(os.path.realpath(args.pack)) == os.path.realpath(path):
        raise UserError(f"{args.pack} would lie in the atlas's own folder; name a file elsewhere")
    _use(args, asked[0] if asked else "show", path)
    return 0


def _use(args: Args, task: str, path: Path) -> None:
    if args.pack is not None:
        print(f"packing into {args.pack} ...", flush=True)
    try:
        done = run_task(task, path, args.pack or args.add)
    except ProcessDiedError as error:
        place = [] if args.atlas is None else ["--atlas", args.atlas]
        raise UserError(
            f"the atlas {path} cannot be read (the process that did so ended with {error}); "
            f"see: {format_command('games', 'atlas', *place, '--verify')}"
        ) from None
    if args.add is not None:
        print(f"{done['new']:,} of {done['entries']:,} entries were new")
    if args.pack is not None:
        size = done["bytes"] / 1e6
        add = format_command("games", "atlas", "--add", args.pack)
        print(f"{done['entries']:,} entries in {size:.1f} MB; take them in with: {add}")
    now = done["now"]
    met = now["hits"] + now["misses"]
    known = f", {100 * now['hits'] / met:.1f} % of them known" if met else ""
    on_disk = f"{now['entries']:,} entries in {now['bytes'] / 1e6:.1f} MB on disk"
    print(f"{path}\n{on_disk}; games came to {met:,} states{known}")


def _verify(path: Path) -> int:
    try:
        found = run_task("verify", path)
    except ProcessDiedError as error:
        if not error.by_damage:
            raise UserError(f"the atlas {path} could not be read to its end ({error}); try again") from None
        found = {"damage": f"reading it ended with {error}", "entries": 0, "damaged": 0}
    if found["damage"]:
        raise UserError(
            f"the atlas {path} is damaged ({found['damage']}); move it away, with: mv {path} {path}.damaged; a new one "
            "is made when a game is next searched, and nothing but what had been found is lost"
        )
    if found["damaged"]:
        raise UserError(
            f"{found['damaged']:,} of {found['entries']:,} entries of the atlas {path} have a wrong checksum; they are "
            "never used, and are replaced when games come to their states, so nothing needs to be done"
        )
    print(f"{path} is whole: all pages can be read, and the checksums of {found['entries']:,} entries are right")
    return 0
