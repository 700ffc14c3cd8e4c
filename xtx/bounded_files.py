"""Reads files that may be damaged, hostile or no files at all, within limits.

Only regular files are read (a FIFO would block for ever), at most so many bytes of them, and JSON only if it is not
nested deeply and has no numbers that overflow later. What is wrong with the content is a `BadFileError` in one line;
what cannot be opened, or is no regular file, is an `OSError`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from xtx.regular_files import open_readable

MAX_JSON_BYTES = 16 << 20
"""Size of one JSON document. The largest that xtx writes, versions.json of a run with thousands of starts, has 1 MB."""
MAX_LINE_BYTES = 16 << 20
"""Size of one line of a .jsonl file. An episode of 100,000 commands has 3 MB."""
MAX_LINES_BYTES = 4 << 30
"""Size of a whole .jsonl file; one of 800,000 steps has some 10 MB."""
MAX_DEPTH = 32
"""Nesting of JSON. Settings are nested four deep; Python's recursion ends at 1,000."""
MAX_DIGITS = 24
"""Digits of a number in a row: 64-bit integers have 19, and floats as they are printed 17."""

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""Possessive: to be able to go back in a string of megabytes takes memory for each of its bytes."""
_BRACKET = re.compile(rb"[\[\]{}]")
_LONG_NUMBER = re.compile(rb"\d{%d}" % (MAX_DIGITS + 1))

_Kind = TypeVar("_Kind")


class BadFileError(msgspec.DecodeError):
    """The content of a file cannot be used; the text says why, without the file's name. It is a `ValueError` too."""


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """All bytes of a regular file. Raises `BadFileError` if there are more than `max_bytes`, or `OSError`."""
    with open_readable(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise BadFileError(f"larger than {max_bytes:,} bytes")
    return content


def decode_json(content: bytes, kind: type[_Kind] | Any = Any) -> Any:
    """The value of a JSON document, as `msgspec` decodes it for the type `kind`. Raises `BadFileError`."""
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
        return  # most documents, without a closer look
    bare = _STRING.sub(b"", content)
    if _LONG_NUMBER.search(bare):
        raise BadFileError(f"a number of more than {MAX_DIGITS} digits")
    depth = 0
    for bracket in _BRACKET.findall(bare):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise BadFileError(f"nested more than {MAX_DEPTH} deep")


def read_json(path: Path, kind: type[_Kind] | Any = Any, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """The value in a JSON file. Raises `BadFileError` or `OSError`."""
    return decode_json(read_bounded(path, max_bytes), kind)


def read_json_lines(path: Path, kind: type[_Kind] | Any = Any) -> Iterator[Any]:
    """The values in a .jsonl file; a last line that is still being written is left out, and a file that is not there
    has none. Raises `BadFileError`, which names the line, or `OSError`."""
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
