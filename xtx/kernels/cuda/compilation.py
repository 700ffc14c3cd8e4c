"""Compiles the CUDA sources beside this file when they are first used."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch


def can_compile() -> bool:
    """Return whether this version of torch can compile kernels."""
    return "_compile_kernel" in dir(torch.cuda)


@cache
def compile_kernel(file: str, name: str, **sizes: int) -> Any:
    """Return a kernel of a file, compiled once in a process. `sizes`: macros to define."""
    defined = "".join(f"#define {letter} {number}\n" for letter, number in sizes.items())
    compile_source: Any = torch.cuda._compile_kernel
    return compile_source(defined + (Path(__file__).parent / file).read_text(), name)
