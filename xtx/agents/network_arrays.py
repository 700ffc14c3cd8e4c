"""Converts networks and optimisers to NumPy arrays for checkpoints, and back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from xtx.core import State


def copy_module_state(module: torch.nn.Module) -> dict[str, NDArray[np.float32]]:
    """Return copies of all tensors of a module, by name."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in module.state_dict().items()}


def load_module(module: torch.nn.Module, arrays: Mapping[str, NDArray[np.float32]]) -> None:
    """Set the tensors of a module of the same shape to what `copy_module_state` returned."""
    module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})


def copy_optimiser_state(optimiser: torch.optim.Optimizer) -> State:
    """Return copies of Adam's statistics of each parameter, by the parameter's index."""
    slots = optimiser.state_dict()["state"]
    return {
        str(place): {name: tensor.detach().cpu().numpy().copy() for name, tensor in slot.items()}
        for place, slot in slots.items()
    }


def load_optimiser(optimiser: torch.optim.Optimizer, state: State) -> None:
    """Set the statistics of an optimiser of the same parameters to what `copy_optimiser_state` returned."""
    whole = optimiser.state_dict()
    whole["state"] = {
        int(place): {name: torch.from_numpy(array.copy()) for name, array in slot.items()}
        for place, slot in state.items()
    }
    optimiser.load_state_dict(whole)
