"""Loads Jericho's libfrotz, and the bridge to it that is compiled from frotz_bridge.c."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jericho

from xtx.core import UserError
from xtx.games.zmachine.typed_input import COMMAND_LENGTH

_OPENING_SECONDS = 3.0
"""Limits the processor time of a story's opening, which libfrotz runs to the first prompt without counting. The longest
one known takes 0.1 s."""
_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO)
"""Numbers of errors that another folder for temporary files avoids."""


class Trace(ctypes.Structure):
    """What is being tried right now, in memory shared with the parent (games/vector/shared_page.py)."""

    _fields_ = (("progress", ctypes.c_uint64), ("command", ctypes.c_char * (COMMAND_LENGTH + 2)))


class WorldStruct(ctypes.Structure):
    """`world` in frotz_bridge.c and in zset.h: what counts as a change of the world."""

    _fields_ = (
        ("set_mask", ctypes.c_void_p),
        ("clear_mask", ctypes.c_void_p),
        ("wanderers", ctypes.c_void_p),
        ("wanderer_count", ctypes.c_int32),
        ("first_object", ctypes.c_uint32),
        ("small", ctypes.c_int32),
        ("object_count", ctypes.c_int32),
        ("score_address", ctypes.c_int32),
        ("score_size", ctypes.c_int32),
    )


LIBRARY: Path | None = None
"""The compiled bridge, if it is not the one beside this file: a build with sanitizers, for tests."""


def load_bridge() -> ctypes.CDLL:
    """Load the compiled bridge. Raises `ImportError` if it is missing."""
    found = [LIBRARY] if LIBRARY is not None else sorted(Path(__file__).parent.glob("_frotz_bridge*.so"))
    if not found:
        raise ImportError(
            "xtx/games/emulator/_frotz_bridge*.so is missing: install the package (pip install -e .) to compile it"
        )
    # For all to see: libfrotz must find the function in it that refuses to open files.
    bridge = ctypes.CDLL(str(found[0]), mode=ctypes.RTLD_GLOBAL)
    pointer, u64 = ctypes.c_void_p, ctypes.c_uint64
    bridge.bridge_open.argtypes, bridge.bridge_open.restype = [pointer, pointer], pointer
    bridge.bridge_close.argtypes, bridge.bridge_close.restype = [pointer], None
    bridge.bridge_reset_streams.argtypes, bridge.bridge_reset_streams.restype = [pointer], None
    bridge.bridge_adopt.argtypes = [pointer, ctypes.c_char_p, u64]
    bridge.bridge_restore.argtypes = [
        pointer, ctypes.c_char_p, u64, ctypes.c_char_p, u64, *[ctypes.c_int64] * 8, ctypes.c_char_p, u64,
    ]  # fmt: skip
    bridge.bridge_restore.restype = ctypes.c_char_p
    bridge.bridge_step.argtypes = [pointer, ctypes.c_char_p, u64, ctypes.POINTER(u64)]
    bridge.bridge_has_quit.argtypes = [pointer]
    bridge.bridge_filter.argtypes = [
        pointer, ctypes.c_char_p, ctypes.c_int, ctypes.c_int, u64, ctypes.POINTER(WorldStruct), pointer, pointer,
        pointer, pointer,
    ]  # fmt: skip
    bridge.bridge_responses.argtypes = [
        pointer, ctypes.c_char_p, ctypes.c_int, ctypes.c_int, u64, ctypes.c_char_p, ctypes.POINTER(u64),
    ]  # fmt: skip
    return bridge


class _HardenedFrotzEnv(jericho.FrotzEnv):  # type: ignore[misc]
    """Jericho's environment, in which a story's instructions to save to a file and to restore from one fail.

    libfrotz would follow them in the present folder without asking. While a command runs, the bridge ends it before
    such an instruction; this also covers the opening, which a story runs while it is loaded."""

    def load(self, story_file: str, seed: int | None = None) -> None:
        """Load a story, after its instructions for files were replaced."""
        lib = self.frotz_lib
        version = ctypes.c_uint8.in_dll(lib, "h_version")

        def fail() -> None:
            # Up to version 3 the instruction branches on success, later it stores a number: 0 means failure.
            (lib.branch if version.value <= 3 else lib.store)(0)

        self._failing = ctypes.CFUNCTYPE(None)(fail)  # must live as long as the library
        replacement = ctypes.cast(self._failing, ctypes.c_void_p)
        for table, places in (("op0_opcodes", (5, 6)), ("ext_opcodes", (0, 1))):
            operations = (ctypes.c_void_p * 7).in_dll(lib, table)
            for place in places:
                operations[place] = replacement.value
        with _bound_opening():
            super().load(story_file, seed)

    def reset(self) -> Any:
        """Begin a new game, as Jericho does."""
        with _bound_opening():
            return super().reset()


@contextlib.contextmanager
def _bound_opening() -> Iterator[None]:
    """End this process by SIGVTALRM if the opening within does not end; `describe_end` says so then."""
    left, interval = signal.setitimer(signal.ITIMER_VIRTUAL, _OPENING_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, left, interval)


@contextlib.contextmanager
def explain_temporary_files() -> Iterator[None]:
    """Raise `UserError` if temporary files cannot be written within: Jericho loads a copy of libfrotz."""
    try:
        yield
    except OSError as error:
        folder = tempfile.gettempdir()
        if error.errno is None and os.statvfs(folder).f_flag & os.ST_NOEXEC:  # of the dynamic linker
            why = f"libraries cannot be loaded from the folder for temporary files, {folder}, which is mounted noexec"
        elif error.errno in _NOT_WRITTEN:
            why = f"the folder for temporary files, {folder}, cannot be written ({error.strerror})"
        else:
            raise
        raise UserError(f"{why}; set TMPDIR to another folder") from None


def open_jericho_env(path: str, seed: int) -> jericho.FrotzEnv:
    """Return Jericho's own environment, in which no story can open files."""
    load_bridge()  # before libfrotz, which then finds the function in it that refuses transcripts and recordings
    with explain_temporary_files(), warnings.catch_warnings():
        warnings.simplefilter("ignore", jericho.jericho.UnsupportedGameWarning)
        return _HardenedFrotzEnv(path, seed)
