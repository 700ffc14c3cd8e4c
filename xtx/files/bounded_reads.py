"""Reads files that may be damaged or hostile, within limits of size, nesting and numbers.

Only regular files are read (a FIFO would block for ever), at most a given number of bytes, and JSON only if it is not
nested deeply and has no numbers that overflow later. Bad content raises `BadFileError` with one line of text; a file
that cannot be opened, or is not regular, raises `OSError`.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from xtx.files.regular_files import open_readable

MAX_JSON_BYTES = 16 << 20
"""Limits one JSON document. The largest that xtx writes, versions.json of a run with thousands of starts, has 1 MB."""
MAX_LINE_BYTES = 16 << 20
"""Limits one line of a .jsonl file. An episode of 100,000 commands has 3 MB."""
MAX_LINES_BYTES = 4 << 30
"""Limits a whole .jsonl file; that of a run of 800,000 steps has some 10 MB."""
MAX_DEPTH = 32
"""Limits the nesting of JSON. Settings are nested four deep; Python's recursion ends at 1,000."""
MAX_DIGITS = 24
"""Limits the digits of a number: 64-bit integers have 19, and printed floats 17."""

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""The quantifiers are possessive: backtracking would take memory for each byte of a long string."""
_BRACKET = re.compile(rb"[\[\]{}]")
_LONG_NUMBER = re.compile(rb"\d{%d}" % (MAX_DIGITS + 1))

_Kind = TypeVar("_Kind")


class BadFileError(msgspec.DecodeError):
    """The content of a file cannot be used. The text says why, without the file's name. Also a `ValueError`."""


def explain_read_error(error: Exception) -> str:
    """Why a file could not be read, without its name."""
    return str((isinstance(error, OSError) and error.strerror) or error)


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file. Raises `BadFileError` if it is larger than `max_bytes`, or `OSError`."""
    with open_readable(path) as file:
        is_larger = os.fstat(file.fileno()).st_size > max_bytes
        content = b"" if is_larger else file.read(max_bytes + 1)  # it may grow while it is read
    if is_larger or len(content) > max_bytes:
        raise BadFileError(f"larger than {max_bytes:,} bytes")
    return content


def decode_json(content: bytes, kind: type[_Kind] | Any = Any) -> Any:
    """Decode a JSON document to the type `kind`, by `msgspec`. Raises `BadFileError`."""
    check_bounds(content)
    try:
        return msgspec.json.decode(content, type=kind)
    except RecursionError:
        raise BadFileError("nested too deeply") from None
    except ValueError as error:  # msgspec's errors and UnicodeDecodeError are among them
        raise BadFileError(" ".join(str(error).split())) from None


def check_bounds(content: bytes) -> None:
    """Raise `BadFileError` if JSON is nested too deeply, or holds a number of too many digits."""
    if content.count(b"[") + content.count(b"{") <= MAX_DEPTH and not _LONG_NUMBER.search(content):
        return  # most documents: the nesting need not be measured
    bare = _STRING.sub(b"", content)
    if _LONG_NUMBER.search(bare):
        raise BadFileError(f"a number of more than {MAX_DIGITS} digits")
    depth = 0
    for bracket in _BRACKET.findall(bare):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise BadFileError(f"nested more than {MAX_DEPTH} deep")


def read_json(path: Path, kind: type[_Kind] | Any = Any, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Decode a JSON file to the type `kind`. Raises `BadFileError` or `OSError`."""
    return decode_json(read_bounded(path, max_bytes), kind)


def read_json_lines(path: Path, kind: type[_Kind] | Any = Any) -> Iterator[Any]:
    """Yield the decoded lines of a .jsonl file, without a last line that is still being written; none if the file is
    missing. Raises `BadFileError`, which names the line, or `OSError`."""
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open_readable(path))
        except FileNotFoundError:
            return
        number, left = 0, MAX_LINES_BYTES
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            left -= len(line)
            if len(line) > MAX_LINE_BYTES:
                raise BadFileError(f"line {number}: larger than {MAX_LINE_BYTES:,} bytes")
            if left < 0:
                raise BadFileError(f"larger than {MAX_LINES_BYTES:,} bytes")
            if not line.endswith(b"\n"):
                return
            try:
                value = decode_json(line, kind)
            except BadFileError as error:
                raise BadFileError(f"line {number}: {error}") from None
            yield value
