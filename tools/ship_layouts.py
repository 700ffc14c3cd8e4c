"""Surveys every story in some folders and writes what is found to xtx/games/catalog/data/layouts.xz.

    .venv/bin/python tools/ship_layouts.py ../shared/games          # some 10 s for each story on two cores
    .venv/bin/python tools/ship_layouts.py --check ../shared/games  # compares with what is there; exit 1 if it differs

To be run again whenever SURVEY_VERSION changes. Each story is surveyed in a process of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from xtx.core import UserError
from xtx.games.canonical.shipped_layouts import (
    FILE,
    ShippedLayout,
    pack_layouts,
    read_shipped,
    read_shipped_layout,
    strip_layout,
)
from xtx.games.canonical.survey import survey_layout
from xtx.games.catalog.known_games import DATA
from xtx.games.catalog.story_file import Story, read_story
from xtx.games.emulator.frotz import Emulator


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of story files")
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--missing", action="store_true", help="survey only what is not in the file yet")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        return survey_one(args.folders[0], args.one)
    layouts = dict(read_shipped()) if args.missing else {}
    wrong = []
    for path in sorted(path for folder in args.folders for path in folder.iterdir()):
        try:
            story = read_story(path)
        except UserError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        if story.md5 in layouts:
            continue
        began = time.monotonic()
        with tempfile.NamedTemporaryFile() as file:  # libfrotz may print to standard output
            subprocess.run([sys.executable, __file__, path, "--one", file.name], stdout=subprocess.DEVNULL, check=True)
            layouts[story.md5] = msgspec.msgpack.decode(file.read(), type=ShippedLayout)
        same = is_shipped(story, layouts[story.md5]) if args.check else True
        wrong += [] if same else [path.name]
        print(f"{path.name}: {time.monotonic() - began:.1f} s{'' if same else ', NOT as shipped'}", file=sys.stderr)
        if not args.check:
            (DATA / FILE).write_bytes(pack_layouts(layouts))
    print(f"{len(layouts)} layouts, {len(wrong)} not as shipped", file=sys.stderr)
    return 1 if wrong else 0


def survey_one(path: Path, out: Path) -> int:
    """Writes the layout of one story to a file."""
    emulator = Emulator(read_story(path))
    out.write_bytes(msgspec.msgpack.encode(strip_layout(emulator, survey_layout(emulator))))
    return 0


def is_shipped(story: Story, found: ShippedLayout) -> bool:
    """Whether a layout that was found afresh is the one that comes with xtx."""
    emulator = Emulator(story)
    shipped = read_shipped_layout(emulator)
    return shipped is not None and strip_layout(emulator, shipped) == found


if __name__ == "__main__":
    sys.exit(main())
