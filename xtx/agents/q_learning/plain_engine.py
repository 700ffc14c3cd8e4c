"""The Q-learner's networks on any device: the engine for CPUs, and the reference for other engines.

Nothing is encoded twice. The learning network encodes each distinct text of a batch once; the target network encodes
each distinct text once between two copies, and its values of states are cached until the next copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xtx.agents.network_arrays import copy_module_state, copy_optimiser_state, load_module, load_optimiser
from xtx.agents.state_ids import StateIds
from xtx.config.settings import InverseSettings, QSettings
from xtx.core import State
from xtx.kernels.cpu.gru import PrefixTree
from xtx.networks.losses import mean_over_tokens, mean_per_action, td_loss
from xtx.networks.q_networks import DrrnNetwork, Encoder, InvDyNetwork
from xtx.text.text_table import Ints

PARTS = ("narration", "look", "inventory")
"""The texts of an observation, in the order of the columns of `texts` arrays."""
Floats = NDArray[np.float32]


class PlainEngine:
    """The engine for any device; see `Engine` in learner.py for its methods."""

    def __init__(
        self, q: QSettings, inverse: InverseSettings | None, state_ids: StateIds, device: torch.device
    ) -> None:
        self._q = q
        self._inverse = inverse
        self._state_ids = state_ids
        self._device = device
        vocabulary = state_ids.texts.vocabulary.capacity
        self.network = make_network(inverse, vocabulary, q.hidden).to(device)
        self._target = _Target(make_network(inverse, vocabulary, q.hidden).to(device), state_ids)
        self._target.copy(self.network)
        self._optimiser = torch.optim.Adam(self.network.parameters(), lr=q.learning_rate, fused=True)
        self.updates = 0

    @torch.no_grad()
    def q_values(self, texts: Ints, actions: Sequence[Ints]) -> Floats:
        """Return the values of all actions of all states, concatenated."""
        rows = np.repeat(np.arange(len(texts)), [len(numbers) for numbers in actions])
        network = self.network
        codes = network.state(self._encode_states(texts))
        values: Floats = (
            network.q(codes[rows], self._encode(network.texts.action, np.concatenate(actions))).cpu().numpy()
        )
        return values

    @torch.no_grad()
    def compute_surprises(self, before: Ints, actions: Ints, after: Ints) -> Floats:
        """Return the inverse-dynamics loss L_inv(o, a, o') of each row, [n]."""
        assert isinstance(self.network, InvDyNetwork)
        codes = self.network.state(self._encode_states(np.concatenate((before, after))))
        guess = self.network.guess(codes[: len(before)], codes[len(before) :])
        surprise, counts = self.network.surprise(guess, *self._pad(actions))
        bonus: Floats = mean_per_action(surprise, counts).cpu().numpy()
        return bonus

    def update(self, batch: NDArray[np.void]) -> Mapping[str, float]:
        """Make one update and return its losses."""
        loss, numbers = self._compute_loss(batch)
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), self._q.clip, foreach=True)
        self._optimiser.step()
        self.updates += 1
        if self.updates % self._q.target_every == 0:
            self._target.copy(self.network)
        return {name: float(number) for name, number in {**numbers, "gradient_norm": norm}.items()}

    def _compute_loss(self, batch: NDArray[np.void]) -> tuple[Tensor, dict[str, Tensor]]:
        network, device = self.network, self._device
        rewards = torch.from_numpy(batch["reward"].copy()).to(device)
        terminal = torch.from_numpy(batch["terminal"].copy()).to(device)
        next_values = torch.from_numpy(self._target.compute_values(batch)).to(device)
        texts = _list_columns(batch, "")
        if isinstance(network, InvDyNetwork):  # inverse dynamics also reads the states after the actions
            texts = np.concatenate((texts, _list_columns(batch, "next_")))
        codes = network.state(self._encode_states(texts))
        before = codes[: len(batch)]
        actions = self._encode(network.texts.action, batch["action"])
        q = network.q(before, actions)
        loss = td_loss(q, rewards, next_values, terminal, self._q.gamma)
        numbers = {"loss_td": loss.detach(), "q": q.detach().mean(), "reward": rewards.mean()}
        if isinstance(network, InvDyNetwork) and self._inverse is not None:
            guess = network.guess(before, codes[len(batch) :])
            tokens, lengths = self._pad(batch["action"])
            # Both decodings in one call: rows are independent of each other.
            surprise, counts = network.surprise(
                torch.cat((guess, actions)), tokens.repeat(2, 1), lengths.repeat(2)
            )  # fmt: skip
            n = len(batch)
            inverse_loss = mean_over_tokens(surprise[:n], counts[:n])
            decoding_loss = mean_over_tokens(surprise[n:], counts[n:])
            loss = loss + self._inverse.alpha2 * inverse_loss + self._inverse.alpha3 * decoding_loss
            numbers |= {"loss_inverse": inverse_loss.detach(), "loss_decoding": decoding_loss.detach()}
        return loss, numbers

    def _encode_states(self, texts: Ints) -> Tensor:
        """Encode states: ids of narration, look, inventory [n, 3] -> codes [n, 3 * hidden]."""
        encoders = self.network.texts
        parts = (encoders.narration, encoders.look, encoders.inventory)
        return torch.cat([self._encode(part, texts[:, i]) for i, part in enumerate(parts)], dim=1)

    def _encode(self, encoder: Encoder, texts: NDArray[np.integer]) -> Tensor:
        return _encode(encoder, self.network.texts.embedding, self._state_ids, texts)

    def _pad(self, texts: NDArray[np.integer]) -> tuple[Tensor, Tensor]:
        """Return the texts' tokens [n, L], padded with zeros, and their lengths [n]."""
        rows = self._state_ids.texts.rows
        flat, offsets = rows.gather(texts)
        lengths = np.diff(offsets)
        tokens = np.zeros((len(texts), lengths.max()), np.int64)
        tokens[np.arange(lengths.max()) < lengths[:, None]] = flat
        return torch.from_numpy(tokens).to(self._device), torch.from_numpy(lengths).to(self._device)

    def clear_cache(self) -> None:
        """Clear the target network's cached codes and values."""
        self._target.clear_cache()

    def clear_cached_texts(self, texts: Sequence[int]) -> None:
        """Do nothing: results of the learning network are not cached."""

    def state(self) -> State:
        """Return weights, optimiser and caches for `load`."""
        return {
            "network": copy_module_state(self.network),
            "target": self._target.state(),
            "optimiser": copy_optimiser_state(self._optimiser),
            "updates": self.updates,
        }

    def load(self, state: State) -> None:
        """Restore what `state` returned."""
        load_module(self.network, state["network"])
        self._target.load(state["target"])
        load_optimiser(self._optimiser, state["optimiser"])
        self.updates = state["updates"]


class _Target:
    """The target network, with a cache of its codes of texts and its values of states since the last copy."""

    def __init__(self, network: DrrnNetwork | InvDyNetwork, state_ids: StateIds) -> None:
        self.network = network.requires_grad_(False)
        self._state_ids = state_ids
        self._codes: dict[str, _Codes] = {}
        self._values = KeptValues(state_ids)
        self.clear_cache()

    def copy(self, network: DrrnNetwork | InvDyNetwork) -> None:
        """Copy the weights of the learning network."""
        self.network.load_state_dict(network.state_dict())
        self.clear_cache()

    def clear_cache(self) -> None:
        """Clear the caches."""
        texts = self.network.texts
        encoders = {"action": texts.action, **{part: getattr(texts, part) for part in PARTS}}
        self._codes = {name: _Codes(encoder, texts.embedding, self._state_ids) for name, encoder in encoders.items()}
        self._values.clear()

    @torch.no_grad()
    def compute_values(self, batch: NDArray[np.void]) -> Floats:
        """Return max_a' Q_target(o', a') of each row, [n]; 0 where there are no actions."""
        return self._values.look_up(batch, self._compute)

    def state(self) -> State:
        """Return weights and caches for `load`. The caches are saved because recomputing a value in another batch may
        change its last bits."""
        return {
            "network": copy_module_state(self.network),
            "codes": {name: codes.state() for name, codes in self._codes.items()},
            "values": self._values.state(),
        }

    def load(self, state: State) -> None:
        """Restore what `state` returned."""
        load_module(self.network, state["network"])
        self.clear_cache()
        for name, codes in state.get("codes", {}).items():  # the engine for GPUs saves none
            self._codes[name].load(codes)
        self._values.load(state["values"])

    def _compute(self, texts: Ints, actions: Sequence[Ints]) -> Floats:
        network = self.network
        codes = torch.cat([self._codes[part].look_up(texts[:, i]) for i, part in enumerate(PARTS)], dim=1)
        rows = np.repeat(np.arange(len(texts)), [len(numbers) for numbers in actions])
        acts = self._codes["action"].look_up(np.concatenate(actions))
        values: Floats = network.q(network.state(codes)[rows], acts).cpu().numpy()
        return values


class KeptValues:
    """A cache of state values by the target network: the value of the best action of each state."""

    def __init__(self, state_ids: StateIds) -> None:
        self._state_ids = state_ids
        self._values: dict[bytes, float] = {}

    def clear(self) -> None:
        """Clear the cache: the network has changed, or text ids are about to be given to other texts."""
        self._values = {}

    def look_up(self, batch: NDArray[np.void], q_values: Callable[[Ints, Sequence[Ints]], Floats]) -> Floats:
        """Return max_a' Q_target(o', a') of each row, [n]; 0 where there are no actions.

        `q_values` computes the values of states that are not cached.
        """
        keys = np.column_stack([*(batch[f"next_{part}"] for part in PARTS), batch["next_actions"]])
        names = [key.tobytes() for key in keys]
        missing = {name: key for name, key in zip(names, keys, strict=True) if name not in self._values}
        if missing:
            values = self._compute_best(np.array(list(missing.values())), q_values)
            self._values.update(zip(missing, values.tolist(), strict=True))
        return np.array([self._values[name] for name in names], np.float32)

    def _compute_best(self, keys: Ints, q_values: Callable[[Ints, Sequence[Ints]], Floats]) -> Floats:
        lists = [self._state_ids.action_sets.actions(number) for number in keys[:, 3]]
        counts = np.array([len(actions) for actions in lists])
        values = np.zeros(len(keys), np.float32)
        alive = np.flatnonzero(counts)
        if len(alive):
            q = q_values(keys[alive, :3], [lists[i] for i in alive])
            values[alive] = np.maximum.reduceat(q, np.cumsum(counts[alive]) - counts[alive])
        return values

    def state(self) -> State:
        """Return the cached values for `load`."""
        return {
            "keys": np.frombuffer(b"".join(self._values), np.int32),
            "values": np.array(list(self._values.values()), np.float32),
        }

    def load(self, state: State) -> None:
        """Restore what `state` returned."""
        keys = state["keys"].reshape(-1, len(PARTS) + 1)
        self._values = {key.tobytes(): value for key, value in zip(keys, state["values"].tolist(), strict=True)}


class _Codes:
    """A cache of text codes by one encoder of the target network.

    Only requested codes take up memory. The cache is cleared with every copy of the weights, so allocating it for all
    texts each time would cost more the more texts are known.
    """

    def __init__(self, encoder: Encoder, embedding: Tensor, state_ids: StateIds) -> None:
        self._encoder = encoder
        self._embedding = embedding
        self._state_ids = state_ids
        self._places: Ints = np.zeros(0, np.int32)  # by text id, the row in `_codes`; -1 if not cached
        self._used = 0
        self._codes = torch.zeros(64, encoder.weight_hh.shape[1], device=embedding.device)

    def look_up(self, texts: NDArray[np.integer]) -> Tensor:
        """Return the codes of the texts, [n, hidden]."""
        self._reserve()
        new = np.unique(texts[self._places[texts] < 0])
        if len(new):
            self._put(new, _encode(self._encoder, self._embedding, self._state_ids, new))
        return self._codes[torch.from_numpy(self._places[texts])]

    def _reserve(self) -> None:
        size = self._state_ids.texts.rows.size
        if size > len(self._places):
            grown = np.full(max(size, 2 * len(self._places)), -1, np.int32)
            grown[: len(self._places)] = self._places
            self._places = grown

    def _put(self, texts: NDArray[np.integer], codes: Tensor) -> None:
        used = self._used + len(texts)
        if used > len(self._codes):
            more = max(used, 2 * len(self._codes)) - len(self._codes)
            self._codes = torch.cat((self._codes, self._codes.new_zeros(more, self._codes.shape[1])))
        self._codes[self._used : used] = codes
        self._places[texts] = np.arange(self._used, used)
        self._used = used

    def state(self) -> State:
        """Return the cached codes for `load`."""
        known = np.flatnonzero(self._places >= 0)
        return {"texts": known, "codes": self._codes[torch.from_numpy(self._places[known])].cpu().numpy()}

    def load(self, state: State) -> None:
        """Restore what `state` returned."""
        self._reserve()
        self._put(state["texts"], torch.from_numpy(state["codes"]).to(self._codes.device))


def _encode(encoder: Encoder, embedding: Tensor, state_ids: StateIds, texts: NDArray[np.integer]) -> Tensor:
    """Return the texts' codes, [n, hidden]; a text that occurs several times is encoded once."""
    distinct, where = np.unique(texts, return_inverse=True)
    codes = encoder(PrefixTree(*state_ids.texts.rows.gather(distinct)), embedding)
    return torch.as_tensor(codes[torch.from_numpy(where).to(codes.device)])


def _list_columns(batch: NDArray[np.void], prefix: str) -> Ints:
    return np.column_stack([batch[prefix + part] for part in PARTS])


def make_network(inverse: InverseSettings | None, vocabulary: int, hidden: int) -> DrrnNetwork | InvDyNetwork:
    """Make the network of DRRN, or with inverse dynamics that of INV-DY. `vocabulary`: rows of the embedding."""
    return DrrnNetwork(vocabulary, hidden) if inverse is None else InvDyNetwork(vocabulary, hidden, inverse.reads)
