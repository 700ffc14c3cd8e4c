"""Checkpoint files: a state as arrays and JSON with a checksum. Reading one executes no code."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from xtx.core import State, UserError, warn
from xtx.files.atomic_writes import write_atomically
from xtx.files.file_copies import sync_folder
from xtx.files.regular_files import open_readable

_MAGIC = b"xtx checkpoint 1"
"""The first bytes of a checkpoint, with the version of the format."""
_DIGEST_BYTES = 32
"""Size of a checksum (BLAKE2b)."""
MAX_CHECKPOINTS = 2
"""Numbered checkpoints that are kept: if the newest is damaged, the run continues from the one before."""
_MAX_CHECKPOINT_BYTES = 64 << 30
"""Limits the size of a checkpoint; the largest, with a full replay memory, have some 100 MB."""
_NO_FILE = (errno.ENOENT, errno.EINVAL, errno.ELOOP, errno.ENXIO)
"""Errors of opening a file that mean that no regular file has the name. Others may be temporary."""
_STEP = re.compile(r"[0-9]{1,18}")
"""The name of a checkpoint: its game steps."""
_BLOCK_BYTES = 1 << 20
"""Bytes of one read when a checksum is computed: a whole checkpoint need not fit into memory."""


def write_checkpoint(path: Path, state: State) -> None:
    """Write a state atomically: nested dictionaries and lists of arrays, numbers, strings, booleans, None.

    The file has a magic number, a checksum, and a safetensors file of all arrays whose metadata is the rest as JSON.
    """
    arrays: dict[str, NDArray[Any]] = {}
    tree = _extract_arrays(state, arrays)
    try:
        content = save_arrays(arrays, {"tree": json.dumps(tree)})
    except TypeError as error:
        raise UserError(
            f"the state of the agent cannot be saved ({error}): state() gives nested dictionaries and lists of NumPy "
            "arrays, numbers, strings, booleans and None"
        ) from None
    digest = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
    write_atomically(path, _MAGIC, digest, content)
    sync_folder(path.parent)


def read_checkpoint(path: Path) -> State:
    """Read a state from a checkpoint. Raises `ValueError` if the file is damaged, or `OSError`.

    The checksum is verified block by block before the file is read into memory.
    """
    with open_readable(path) as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ValueError("not a checkpoint of xtx")
        if os.fstat(file.fileno()).st_size > _MAX_CHECKPOINT_BYTES:
            raise ValueError(f"larger than {_MAX_CHECKPOINT_BYTES:,} bytes")
        expected, found = file.read(_DIGEST_BYTES), hashlib.blake2b(digest_size=_DIGEST_BYTES)
        while block := file.read(_BLOCK_BYTES):
            found.update(block)
        if expected != found.digest():
            raise ValueError("damaged")
        file.seek(len(_MAGIC) + _DIGEST_BYTES)
        content = file.read()
    try:
        arrays = load_arrays(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        state = _insert_arrays(json.loads(header["__metadata__"]["tree"]), arrays)
    except (SafetensorError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"damaged ({error})") from None
    if not isinstance(state, dict):
        raise ValueError("damaged")
    return state


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the numbered checkpoints of a run, newest first. Raises `UserError` if that is not allowed."""
    try:
        return sorted((p for p in (folder / "checkpoints").iterdir() if _STEP.fullmatch(p.name)), reverse=True)
    except OSError as error:
        if error.errno in (*_NO_FILE, errno.ENOTDIR):
            return []
        raise UserError(f"{folder / 'checkpoints'} cannot be read ({error.strerror}); put that right") from None


def find_newest_checkpoint(folder: Path, on_warning: Callable[[str], None] = warn) -> tuple[Path | None, State | None]:
    """Find and read the newest good checkpoint; returns its path and content, or None twice if there is none.

    Damaged ones are skipped with a warning. Raises `UserError` if all are damaged, or for one that cannot be read now
    but may be good, because of permissions or the disk.
    """
    paths, warnings = list_checkpoints(folder), []
    for path in paths:
        try:
            saved = read_checkpoint(path)
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise _refuse_unreadable(path, paths, error) from None
            warnings.append(f"the checkpoint {path} cannot be read ({error})")
            continue
        except ValueError as error:
            warnings.append(f"the checkpoint {path} cannot be read ({error})")
            continue
        for warning in warnings:
            on_warning(f"{warning}; going on from the one before")
        return path, saved
    if paths:
        raise UserError(f"no checkpoint in {folder} can be read; start the run again in another folder")
    return None, None


def _refuse_unreadable(path: Path, paths: list[Path], error: OSError) -> UserError:
    """Return the error for a checkpoint that cannot be read now. `paths`: all checkpoints, newest first."""
    line = f"the checkpoint {path} cannot be read ({error.strerror}); try again when that is put right"
    return UserError(f"{line}, or move it away to go on from the one before" if path != paths[-1] else line)


def _extract_arrays(tree: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """Move the arrays of a state into `arrays`, and return the state with a reference in the place of each."""
    if isinstance(tree, Mapping):
        if tree.keys() in ({"array"}, {"bytes"}) or not all(isinstance(key, str) for key in tree):
            raise TypeError(f"a state's keys are strings, and not `array` or `bytes` alone: {list(tree)[:3]}")
        return {key: _extract_arrays(value, arrays) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_extract_arrays(value, arrays) for value in tree]
    if isinstance(tree, np.ndarray):
        name = str(len(arrays))
        arrays[name] = np.asarray(tree, order="C")  # ascontiguousarray would make a scalar one-dimensional
        return {"array": name}
    if isinstance(tree, bytes):
        return {"bytes": tree.hex()}
    if isinstance(tree, np.generic):
        return tree.item()
    return tree


def _insert_arrays(tree: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return a state with its arrays in the place of the references."""
    if isinstance(tree, dict):
        if tree.keys() == {"array"}:
            return arrays[tree["array"]]
        if tree.keys() == {"bytes"}:
            return bytes.fromhex(tree["bytes"])
        return {key: _insert_arrays(value, arrays) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_insert_arrays(value, arrays) for value in tree]
    return tree
