"""Seeded changes of file contents: of bytes, and of the values in JSON and msgpack documents."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np

INTERESTING: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 127, 128, 255, 256, 65535, 65536,
    2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**63 - 1,
    -(2**63), 0.0, -0.5, 1e308, -1e308, float("inf"), float("nan"), "", "x", "x" * 3000, "\x00", "\ud800", "../../x",
    "..", "/", [], {}, [[]], {"": None}, [0] * 300, b"", b"\0" * 100,
)  # fmt: skip
"""Values at which readers tend to fail."""
JSON_ONLY: tuple[Any, ...] = (2**64, 10**400, -(10**400))
_BYTES = (b"\0", b"\xff", b"\x80", b"\n", b'"', b"{", b"[", b"]", b"}", b",", b"-", b"1e999", b"null", b"\xed\xa0\x80")


def mutate_bytes(rng: random.Random, content: bytes) -> bytes:
    """Change a few bytes, cut the content, repeat a part or put something in."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((1, 2, 4, 16, 100)))
        match rng.randrange(7):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(data):
                data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                del data[at:end]
            case 3:
                data[at:at] = rng.choice(_BYTES) * rng.choice((1, 1, 3, 50))
            case 4:
                data[at:at] = data[at:end] * rng.choice((1, 2, 20))
            case 5 if rng.random() < 0.3:
                del data[at:]
            case 6:
                other = rng.randrange(len(data) + 1)
                data[at:end] = data[other : other + end - at]
    return bytes(data)


def mutate_value(rng: random.Random, value: Any, interesting: tuple[Any, ...] = INTERESTING) -> Any:
    """Change one value somewhere in a nested document; the document itself stays as it is."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        return _mutate_dict(rng, value, interesting)
    if isinstance(value, list | tuple) and value and rng.random() < 0.9:
        items = list(value)
        at = rng.randrange(len(items))
        match rng.randrange(8):
            case 0:
                del items[at]
            case 1:
                items[at:at] = [items[at]] * rng.choice((1, 2, 30))
            case 2:
                rng.shuffle(items)
            case _:
                items[at] = mutate_value(rng, items[at], interesting)
        return items
    return _replace(rng, value, interesting)


def _mutate_dict(rng: random.Random, value: dict[Any, Any], interesting: tuple[Any, ...]) -> dict[Any, Any]:
    found = dict(value)
    key = rng.choice(list(found))
    match rng.randrange(10):
        case 0:
            del found[key]
        case 1:
            found[rng.choice(("unknown", "", "steps", "x" * 200))] = rng.choice(interesting)
        case 2:
            found[key] = found[rng.choice(list(found))]
        case _:
            found[key] = mutate_value(rng, found[key], interesting)
    return found


def _replace(rng: random.Random, value: Any, interesting: tuple[Any, ...]) -> Any:
    if isinstance(value, np.ndarray):
        return rng.choice((value[:0], value[:1], value.astype(np.float64), value.reshape(-1), value * 0 - 1, [], None))
    if isinstance(value, bytes) and rng.random() < 0.8:
        return mutate_bytes(rng, value)
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.5:
        return value + rng.choice((-1, 1, 2, 256, 65536, -(2**31)))
    if rng.random() < 0.1:
        return nest(rng.choice((10, 100, 2000)), rng.choice((None, 1)))
    return rng.choice(interesting)


def nest(depth: int, inside: Any) -> Any:
    """Put a value into so many lists."""
    for _ in range(depth):
        inside = [inside]
    return inside


def mutate_json(rng: random.Random, content: bytes) -> bytes:
    """Change one value of a JSON document; content that is none is changed as bytes."""
    return _with_document(rng, content, lambda: json.loads(content))


def mutate_json_lines(rng: random.Random, content: bytes) -> bytes:
    """Change one line of a .jsonl file: its value, its bytes, its place or its number."""
    lines = content.splitlines(keepends=True)
    if not lines:
        return mutate_bytes(rng, content)
    at = rng.randrange(len(lines))
    match rng.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines[at:at] = [lines[at]] * rng.choice((1, 3))
        case 2:
            lines[at] = mutate_bytes(rng, lines[at])
        case 3:
            rng.shuffle(lines)
        case _:
            lines[at] = mutate_json(rng, lines[at]) + b"\n"
    return b"".join(lines)


def _with_document(rng: random.Random, content: bytes, read: Callable[[], Any]) -> bytes:
    if rng.random() < 0.25:
        return mutate_bytes(rng, content)
    try:
        value = read()
        for _ in range(rng.choice((1, 1, 2, 3))):
            value = mutate_value(rng, value, INTERESTING + JSON_ONLY)
        return encode_json(value)
    except (ValueError, RecursionError):
        return mutate_bytes(rng, content)


def encode_json(value: Any) -> bytes:
    """Encode a value as JSON, also one that is nested deeper than Python's encoder goes; bytes become text."""
    if isinstance(value, dict):
        pairs = (json.dumps(str(key)).encode() + b":" + encode_json(item) for key, item in value.items())
        return b"{" + b",".join(pairs) + b"}"
    if isinstance(value, list | tuple):
        depth = 0
        while isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
            value, depth = value[0], depth + 1
        return b"[" * (depth + 1) + b",".join(map(encode_json, value)) + b"]" * (depth + 1)
    if isinstance(value, bytes):
        return json.dumps(value.decode("latin-1")).encode()
    if isinstance(value, str) and "\ud800" in value:
        return b'"\xed\xa0\x80"'
    if isinstance(value, int) and not isinstance(value, bool):
        return b"1" + b"0" * 400 if value > 10**100 else b"-1" + b"0" * 400 if value < -(10**100) else b"%d" % value
    return json.dumps(value).encode()
