"""The CUDA sources beside this file, compiled when they are first needed."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch


def can_compile() -> bool:
    """Whether this torch compiles kernels."""
    return "_compile_kernel" in dir(torch.cuda)


@cache
def compiled(file: str, name: str, **sizes: int) -> Any:
    """A kernel of a file, with these numbers defined for it; compiled once in a process."""
    defined = "".join(f"#define {letter} {number}\n" for letter, number in sizes.items())
    compile_kernel: Any = torch.cuda._compile_kernel
    return compile_kernel(defined + (Path(__file__).parent / file).read_text(), name)
