"""The file formats of xtx, each with a way to change a file and the reader that a user's command would call.

A reader may succeed or raise `UserError` with one line. Everything else is a finding.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import lzma
import random
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
from fault_simulator import MEANS, _SilentDisplay
from fuzz.mutations import INTERESTING, mutate_bytes, mutate_json, mutate_json_lines, mutate_value

import xtx.cli.training.progress_display
from xtx.cli.training import training_session
from xtx.config.settings import RunConfig
from xtx.core import UserError
from xtx.games.atlas.archive import pack, read_packed
from xtx.games.catalog.known_games import find_story
from xtx.games.catalog.profile import read_grammar_templates
from xtx.games.catalog.story_file import Story, check_story, read_story
from xtx.games.emulator.frotz import Emulator, Snapshot
from xtx.games.story_game import GameSpec, StoryGame
from xtx.play import saved_games
from xtx.report.data.load_runs import convert_summary, read_run, read_runs
from xtx.report.data.run_summary import read_summary, summarise, to_json
from xtx.runs.checkpoint_file import find_newest_checkpoint, read_checkpoint, write_checkpoint
from xtx.runs.run_config import read_config
from xtx.training.prepare import prepare

CORPUS = Path(__file__).parent / "corpus"
STEPS = 160
CONFIG = RunConfig("toy:corridor-5", "random", {}, steps=STEPS, num_envs=2, log_every=5, seed=1)
LINES = ("metrics", "episodes", "rooms", "timing", "changes")
MSGPACK = tuple(value for value in INTERESTING if value != "\ud800")
"""Values that msgpack has too."""


@dataclass(frozen=True)
class Format:
    """A kind of file."""

    name: str
    mutate: Callable[[random.Random, bytes, Path], bytes]
    """Change a file's content. The folder is for scratch."""
    read: Callable[[Path, bytes], None]
    """Read such a file in a scratch folder, as commands do."""
    make: Callable[[Path], bytes]
    """Make a good file, in a scratch folder."""

    def list_corpus(self) -> list[Path]:
        """The kept files: good ones, and those at which a reader once failed."""
        return sorted((CORPUS / self.name).iterdir())


# --- a run --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    with (
        mock.patch.object(xtx.cli.training.progress_display, "Display", _SilentDisplay),
        mock.patch("xtx.runs.versions.describe_commit", lambda: ""),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        yield


def make_run(folder: Path) -> Path:
    """Train the toy run that checkpoints, configs and lines are taken from."""
    if not folder.exists():
        with _silent():
            training_session.train(CONFIG, folder, MEANS)
    return folder


def _copy_run(scratch: Path) -> Path:
    folder = scratch / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(make_run(scratch / "run"), folder)
    return folder


def _newest_name() -> str:
    return f"{STEPS:010d}"


def _mutate_checkpoint(rng: random.Random, content: bytes, scratch: Path) -> bytes:
    """Change bytes, or values of the state with a checksum that fits."""
    if rng.random() < 0.2:
        return mutate_bytes(rng, content)
    path = scratch / "checkpoint"
    path.write_bytes(content)
    try:
        state = read_checkpoint(path)
        write_checkpoint(path, mutate_value(rng, state))
    except (ValueError, TypeError, RecursionError, OverflowError):
        return mutate_bytes(rng, content)
    return path.read_bytes()


def _read_checkpoint(scratch: Path, content: bytes) -> None:
    folder = _copy_run(scratch)
    (folder / "checkpoints" / _newest_name()).write_bytes(content)
    for other in (folder / "checkpoints").iterdir():
        if other.name != _newest_name():
            other.unlink()
    with _silent():
        with contextlib.suppress(UserError):
            find_newest_checkpoint(folder)
        training_session.resume(folder, MEANS)


def _read_config(scratch: Path, content: bytes) -> None:
    folder = _copy_run(scratch)
    (folder / "config.json").write_bytes(content)
    with _silent():
        config = read_config(folder)
        with contextlib.suppress(UserError):
            prepare(config, MEANS)
        with contextlib.suppress(UserError):
            training_session.resume(folder, MEANS)
        read_runs([folder])


def _read_lines(scratch: Path, content: bytes) -> None:
    """As one of the files of lines; which one, the content decides."""
    name = LINES[zlib.crc32(content) % len(LINES)]
    folder = _copy_run(scratch)
    (folder / f"{name}.jsonl").write_bytes(content)
    with _silent():
        read_runs([folder])
        training_session.resume(folder, MEANS)


def _make_lines(scratch: Path) -> bytes:
    run = make_run(scratch / "run")
    return b"".join((run / f"{name}.jsonl").read_bytes() for name in ("episodes", "rooms"))


def _make_summary(scratch: Path) -> bytes:
    return to_json(summarise(read_run(make_run(scratch / "run")), None)).encode()


def _read_summary(scratch: Path, content: bytes) -> None:
    path = scratch / "summary.json"
    path.write_bytes(content)
    convert_summary(path, read_summary(path))


# --- games --------------------------------------------------------------------------------------------------------


@cache
def _lowwater() -> Story:
    return read_story(Path(str(files("xtx.games.catalog").joinpath("data", "lowwater.z5"))))


@cache
def _emulator() -> Emulator:
    emulator = Emulator(_lowwater())
    emulator.reset(1)
    return emulator


@cache
def _game() -> StoryGame:
    game = StoryGame(GameSpec(str(_lowwater().path), search=False))
    game.emulator.reset(1)
    return game


def _make_packed(scratch: Path) -> bytes:
    return pack({bytes([number]) * 16: msgspec.msgpack.encode(["north", "take lamp"]) for number in range(20)})


def _mutate_packed(rng: random.Random, content: bytes, scratch: Path) -> bytes:
    if rng.random() < 0.3:
        return mutate_bytes(rng, content)
    try:
        inside = lzma.decompress(content)
        if rng.random() < 0.4:
            return lzma.compress(mutate_bytes(rng, inside))
        return lzma.compress(_encode_msgpack(mutate_value(rng, msgspec.msgpack.decode(inside), MSGPACK)))
    except (lzma.LZMAError, EOFError, msgspec.MsgspecError, ValueError):
        return mutate_bytes(rng, content)


def _encode_msgpack(value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, RecursionError, UnicodeEncodeError):
        return b"\xc1"


def _read_packed(scratch: Path, content: bytes) -> None:
    path = scratch / "packed"
    path.write_bytes(content)
    read_packed(path)


def _read_profile(scratch: Path, content: bytes) -> None:
    """Beside the story that it is for; then the emulator reads what it says of the game."""
    story = scratch / "story.z5"
    story.write_bytes(_lowwater().content)
    (scratch / "story.json").write_bytes(content)
    found = find_story(str(story))
    emulator = Emulator(found)
    try:
        emulator.reset(1)
        _ = emulator.score, emulator.moves, emulator.over, emulator.won, emulator.player, emulator.bindings.templates
    finally:
        emulator.close()


def _mutate_story(rng: random.Random, content: bytes, scratch: Path) -> bytes:
    """Change bytes, mostly with a checksum that fits."""
    data = bytearray(mutate_bytes(rng, content))
    if len(data) >= 64 and rng.random() < 0.8:
        length = int.from_bytes(data[26:28], "big") * (4 if data[0] in (4, 5) else 8 if data[0] == 8 else 2)
        data[28:30] = (sum(data[64:length]) & 0xFFFF).to_bytes(2, "big")
    return bytes(data)


def _read_story(scratch: Path, content: bytes) -> None:
    """All that is read from a story before it is run. Running unknown stories in Frotz is not among the promises."""
    path = scratch / "unknown.z5"
    path.write_bytes(content)
    read_story(path)
    check_story(content, "unknown.z5")
    with contextlib.suppress(ValueError):
        read_grammar_templates(content)


def _make_snapshot(scratch: Path) -> bytes:
    emulator = _emulator()
    emulator.reset(1)
    emulator.step("north")
    return msgspec.msgpack.encode(emulator.save())


def _mutate_msgpack(rng: random.Random, content: bytes, scratch: Path) -> bytes:
    if rng.random() < 0.2:
        return mutate_bytes(rng, content)
    try:
        value = msgspec.msgpack.decode(content)
        for _ in range(rng.choice((1, 1, 2, 4))):
            value = mutate_value(rng, value, MSGPACK)
        return _encode_msgpack(value)
    except (msgspec.MsgspecError, ValueError):
        return mutate_bytes(rng, content)


def _read_snapshot(scratch: Path, content: bytes) -> None:
    """Restored where it can be decoded; a good state after it must work as before."""
    try:
        state = msgspec.msgpack.decode(content, type=Snapshot)
    except msgspec.MsgspecError:
        return
    emulator = _emulator()
    try:
        emulator.restore(state)
    finally:
        emulator.reset(1)
        emulator.step("north")
        assert emulator.narration, "the emulator says nothing after a forged state"


def _make_saved_game(scratch: Path) -> bytes:
    game = _game()
    game.emulator.reset(1)
    saved = saved_games.SavedGame(_lowwater().md5, game.save(), "Quay", 0, 1)
    with mock.patch.object(saved_games, "find_folder", lambda game: scratch / "saves"):
        return saved_games.write_save("lowwater", "fuzz", saved).read_bytes()


def _mutate_saved_game(rng: random.Random, content: bytes, scratch: Path) -> bytes:
    """Change bytes; or the values, with a checksum of the file that fits, and sometimes one of the state inside."""
    start = len(saved_games._MAGIC) + saved_games._DIGEST
    if rng.random() < 0.2:
        return mutate_bytes(rng, content)
    try:
        value = msgspec.msgpack.decode(content[start:])
        if rng.random() < 0.6 and isinstance(value.get("state"), bytes):
            inside = _mutate_msgpack(rng, value["state"][16:], scratch)
            key = _lowwater().md5.encode()
            value["state"] = hashlib.blake2b(inside, digest_size=16, key=key).digest() + inside
        else:
            value = mutate_value(rng, value, MSGPACK)
        body = _encode_msgpack(value)
    except (msgspec.MsgspecError, ValueError, AttributeError):
        body = mutate_bytes(rng, content[start:])
    return saved_games._MAGIC + saved_games._compute_digest(body) + body


def _read_saved_game(scratch: Path, content: bytes) -> None:
    folder = scratch / "saves"
    folder.mkdir(exist_ok=True)
    (folder / "fuzz.save").write_bytes(content)
    with mock.patch.object(saved_games, "find_folder", lambda game: folder):
        saved = saved_games.read_save("lowwater", "fuzz", _lowwater().md5)
    game = _game()
    game._load(saved.state)
    game.emulator.reset(1)


def _ignoring_scratch(mutate: Callable[[random.Random, bytes], bytes]) -> Callable[[random.Random, bytes, Path], bytes]:
    return lambda rng, content, scratch: mutate(rng, content)


FORMATS = {
    form.name: form
    for form in (
        Format(
            "checkpoint",
            _mutate_checkpoint,
            _read_checkpoint,
            lambda scratch: (make_run(scratch / "run") / "checkpoints" / _newest_name()).read_bytes(),
        ),
        Format(
            "config",
            _ignoring_scratch(mutate_json),
            _read_config,
            lambda scratch: (make_run(scratch / "run") / "config.json").read_bytes(),
        ),
        Format("lines", _ignoring_scratch(mutate_json_lines), _read_lines, _make_lines),
        Format("summary", _ignoring_scratch(mutate_json), _read_summary, _make_summary),
        Format("packed", _mutate_packed, _read_packed, _make_packed),
        Format(
            "profile",
            _ignoring_scratch(mutate_json),
            _read_profile,
            lambda scratch: files("xtx.games.catalog").joinpath("data", "lowwater.json").read_bytes(),
        ),
        Format("story", _mutate_story, _read_story, lambda scratch: _lowwater().content),
        Format("snapshot", _mutate_msgpack, _read_snapshot, _make_snapshot),
        Format("saved-game", _mutate_saved_game, _read_saved_game, _make_saved_game),
    )
}
