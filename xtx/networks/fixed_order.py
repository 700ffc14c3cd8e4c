"""Sums in a fixed order, so that a training is reproducible on a GPU as well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def sum_in_fixed_order() -> Iterator[None]:
    """Within `with`, make every sum on a GPU in a fixed order.

    Without it the backward pass of torch's attention adds parts of a gradient in the order in which they are ready, and
    two runs of one seed differ. On a CPU the order is fixed anyway.
    """
    more: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), more.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    # No step reads uninitialised memory; filling it all the same would be a third of the kernels.
    more.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        more.fill_uninitialized_memory = before[1]
