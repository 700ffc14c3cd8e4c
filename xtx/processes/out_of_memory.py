"""Distinguishes a lack of memory from other errors, whichever library reports it."""

from __future__ import annotations

import errno

ADVICE = (
    "close other programs, raise the limit (ulimit -v), or use fewer --workers, fewer --num-envs or smaller settings"
)
_TEXTS = (
    "can't allocate memory", "cannot allocate memory", "failed to map segment", "not enough memory", "std::bad_alloc",
    "bad allocation", "unable to allocate", "defaultcpuallocator",
)  # fmt: skip
"""What torch, the dynamic linker, LMDB and C++ libraries say, in small letters."""
_PROCESSES = ("can't start new thread", "resource temporarily unavailable")


def explain_lack_of_memory(error: BaseException) -> str:
    """One line about an error that means a lack of memory, or of processes and threads; empty for any other error."""
    said = " ".join(str(error).split())
    lower = said.lower()
    if (isinstance(error, OSError) and error.errno == errno.EAGAIN) or any(text in lower for text in _PROCESSES):
        return f"no further process or thread can be started ({_shorten(said)}); {ADVICE}"
    if isinstance(error, RuntimeError) and "out of memory" in lower and "cuda" in lower:
        return f"the GPU has not enough memory ({_shorten(said)}); end other programs on it, or use --device cpu"
    known = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    libraries = isinstance(error, RuntimeError | ImportError | OSError) and any(text in lower for text in _TEXTS)
    return f"there is not enough memory{f' ({_shorten(said)})' if said else ''}; {ADVICE}" if known or libraries else ""


def _shorten(text: str) -> str:
    return text if len(text) < 160 else f"{text[:150]} ..."
