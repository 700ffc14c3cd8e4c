"""The Q-learning engine for GPUs against the plain one. Needs a GPU; skipped elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from xtx.agents.q_learning.plain_engine import PlainEngine
from xtx.agents.state_ids import StateIds
from xtx.config.settings import InverseSettings, QSettings, TextSettings
from xtx.memory import ROW
from xtx.text.text_table import Ints

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"),
]

WORDS = [f"word{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(300)]


class Scene:
    """Texts, states and batches at random."""

    def __init__(self, seed: int = 0, vocabulary: int = 512) -> None:
        self.random = np.random.default_rng(seed)
        self.library = StateIds(TextSettings(vocabulary=vocabulary, longest=96))
        text = self.library.texts.id
        self.texts = np.array([text(self.words(1, 60)) for _ in range(200)], np.int32)
        self.actions = np.array([text(self.words(1, 5)) for _ in range(60)], np.int32)
        self.sets = [
            self.library.action_sets.id(self.random.choice(self.actions, n, replace=False).tolist())
            for n in self.random.integers(1, 20, 40)
        ]

    def words(self, least: int, most: int) -> str:
        return " ".join(self.random.choice(WORDS, self.random.integers(least, most + 1)))

    def states(self, n: int) -> Ints:
        return self.random.choice(self.texts, (n, 3)).astype(np.int32)

    def lists(self, n: int) -> Sequence[Ints]:
        return [self.library.action_sets.actions(number) for number in self.random.choice(self.sets, n)]

    def batch(self, n: int = 64) -> np.ndarray:
        rows = np.zeros(n, ROW)
        for name in ("narration", "look", "inventory", "next_narration", "next_look", "next_inventory"):
            rows[name] = self.random.choice(self.texts, n)
        rows["action"] = self.random.choice(self.actions, n)
        rows["terminal"] = self.random.random(n) < 0.2
        rows["next_actions"] = np.where(
            rows["terminal"], self.library.action_sets.none, self.random.choice(self.sets, n)
        )
        rows["reward"] = self.random.normal(size=n)
        return rows


def engines(scene: Scene, inverse: bool = True, hidden: int = 128) -> tuple[PlainEngine, object]:
    from xtx.agents.q_learning.cuda_engine import CudaEngine

    settings = QSettings(hidden=hidden, target_every=3, learning_rate=1e-3)
    losses = InverseSettings() if inverse else None
    torch.manual_seed(1)
    plain = PlainEngine(settings, losses, scene.library, torch.device("cpu"))
    torch.manual_seed(1)
    return plain, CudaEngine(settings, losses, scene.library, torch.device("cuda"))


@pytest.mark.parametrize("hidden", [32, 64, 128])
@pytest.mark.parametrize("inverse", [True, False])
def test_values_and_surprises_are_the_plain_ones(hidden: int, inverse: bool) -> None:
    scene = Scene()
    plain, cuda = engines(scene, inverse, hidden)
    for n in (1, 8, 5):
        states, lists = scene.states(n), scene.lists(n)
        np.testing.assert_allclose(cuda.q_values(states, lists), plain.q_values(states, lists), atol=2e-5, rtol=1e-4)
        if inverse:
            after, actions = scene.states(n), scene.random.choice(scene.actions, n).astype(np.int32)
            np.testing.assert_allclose(
                cuda.compute_surprises(states, actions, after),
                plain.compute_surprises(states, actions, after),
                atol=2e-5,
                rtol=1e-4,
            )


@pytest.mark.parametrize("hidden", [64, 128])
@pytest.mark.parametrize("inverse", [True, False])
def test_updates_are_the_plain_ones(hidden: int, inverse: bool) -> None:
    scene = Scene()
    plain, cuda = engines(scene, inverse, hidden)
    said = []
    for n in (64, 64, 40, 64, 64, 64, 64):
        batch = scene.batch(n)
        said.append(plain.update(batch))
        before = cuda.update(batch)
        if len(said) > 1:
            for name, number in before.items():
                assert number == pytest.approx(said[-2][name], rel=2e-3, abs=2e-4), name
    state = cuda.state()
    for name, number in state["numbers"].items():
        assert number == pytest.approx(said[-1][name], rel=2e-3, abs=2e-4), name
    for name, tensor in plain.network.state_dict().items():
        np.testing.assert_allclose(state["network"][name], tensor.numpy(), atol=3e-3, err_msg=name)


def test_gradients_of_one_update_are_the_plain_ones() -> None:
    scene = Scene()
    plain, cuda = engines(scene)
    batch = scene.batch()
    plain.update(batch)
    cuda.update(batch)
    state = cuda.state()
    # Adam's first memory of a gradient is a tenth of it, clipped alike on both sides.
    for place, (name, _) in enumerate(plain.network.named_parameters()):
        ours = state["optimiser"][str(place)]["exp_avg"]
        theirs = plain._optimiser.state_dict()["state"][place]["exp_avg"].numpy()
        scale = np.abs(theirs).max() + 1e-8
        np.testing.assert_allclose(ours / scale, theirs / scale, atol=2e-4, err_msg=name)


def test_it_goes_on_exactly_and_repeats() -> None:
    scene = Scene()
    batches = [scene.batch() for _ in range(8)]

    def run(cut: bool) -> dict[str, np.ndarray]:
        _, cuda = engines(scene)
        for number, batch in enumerate(batches):
            if cut and number == 4:
                state = cuda.state()
                _, cuda = engines(scene)
                cuda.load(state)
            cuda.update(batch)
        return cuda.state()["network"]

    first, again, resumed = run(False), run(False), run(True)
    for name, tensor in first.items():
        np.testing.assert_array_equal(tensor, again[name], err_msg=name)
        np.testing.assert_array_equal(tensor, resumed[name], err_msg=name)


@pytest.mark.parametrize("rows", [1, 7, 300, 11_264])
@pytest.mark.parametrize("width", [32, 128, 512])
def test_layers_have_the_gradients_of_torchs_own(rows: int, width: int) -> None:
    from xtx.kernels.cuda.transformer_layers import column_sums, layer_norm, linear, take

    torch.manual_seed(rows + width)
    norm = torch.nn.LayerNorm(width).cuda()
    dense = torch.nn.Linear(width, 96).cuda()
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    x = (3 * torch.randn(2, rows, width, device="cuda") + 1).requires_grad_()
    at = torch.randint(rows, (2, 5), device="cuda")
    parameters = [x, *norm.parameters(), *dense.parameters()]

    def gradients(out: torch.Tensor) -> list[torch.Tensor]:
        return [out.detach(), *torch.autograd.grad((out * out.detach().cos()).sum(), parameters)]

    places = at[:, :, None].expand(-1, -1, width)
    plain = gradients(dense(norm(x) + norm(x).gather(1, places).sum(1, keepdim=True)))
    normed = layer_norm(x, norm)
    ours = gradients(linear(normed + take(normed, at).sum(1, keepdim=True), dense.weight, dense.bias))
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4 * float(other.abs().max()), rtol=1e-4)
    flat = x.detach().flatten(0, 1)
    exact = flat.double().sum(0)
    torch.testing.assert_close(column_sums(flat).double(), exact, atol=1e-5 * rows, rtol=1e-5)
    assert torch.equal(column_sums(flat), column_sums(flat))


def test_a_recorded_training_is_the_plain_one_and_repeats() -> None:
    """Of the paper's size; without dropout beside the CPU's, with it beside itself."""
    from xtx.agents.xtx.imitation_training import EagerSteps, Example
    from xtx.kernels.cuda.imitation_training import RecordedTraining
    from xtx.networks.gpt import GPT, Sizes

    draw = np.random.default_rng(0)
    chosen = [Example(draw.integers(1, 500, n + 4).astype(np.int32), int(n)) for n in draw.integers(20, 200, 150)]
    tokens, contexts = [example.tokens for example in chosen], [example.context for example in chosen]

    def trained(dropout: float) -> tuple[list[torch.Tensor], tuple[float, float]]:
        torch.cuda.manual_seed(1)
        model = GPT(Sizes(512), torch.Generator().manual_seed(1)).cuda()
        training = RecordedTraining(model, 1e-3, 1.0, dropout, 64)
        training.begin(tokens, contexts)
        training.run(np.arange(150))
        return [parameter.detach().cpu() for parameter in model.parameters()], training.take_totals()

    plain = GPT(Sizes(512), torch.Generator().manual_seed(1))
    steps = EagerSteps(plain, 1e-3, 1.0, None, 8)
    for start in range(0, 150, 64):
        steps.step(chosen[start : start + 64])
    ours, totals = trained(0.0)
    assert totals == pytest.approx(steps.take_totals(), rel=1e-4)
    for one, other in zip(ours, plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=3e-4, rtol=1e-3)
    first, second = trained(0.1), trained(0.1)
    assert first[1] == second[1] and all(map(torch.equal, first[0], second[0]))
    assert first[1] != totals
