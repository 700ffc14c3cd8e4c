"""Networks and optimisers as arrays: what a checkpoint keeps of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from xtx.core import State


def module_state(module: torch.nn.Module) -> dict[str, NDArray[np.float32]]:
    """Copies of all its tensors, by name."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in module.state_dict().items()}


def load_module(module: torch.nn.Module, arrays: Mapping[str, NDArray[np.float32]]) -> None:
    """Gives a module of the same shape its tensors back."""
    module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})


def optimiser_state(optimiser: torch.optim.Optimizer) -> State:
    """What Adam remembers of each parameter, by the parameter's place."""
    slots = optimiser.state_dict()["state"]
    return {
        str(place): {name: tensor.detach().cpu().numpy().copy() for name, tensor in slot.items()}
        for place, slot in slots.items()
    }


def load_optimiser(optimiser: torch.optim.Optimizer, state: State) -> None:
    """Gives an optimiser of the same parameters its memory back."""
    whole = optimiser.state_dict()
    whole["state"] = {
        int(place): {name: torch.from_numpy(array.copy()) for name, array in slot.items()}
        for place, slot in state.items()
    }
    optimiser.load_state_dict(whole)
