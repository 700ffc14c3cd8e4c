"""The CUDA kernels of the imitation policy's training, simulated on a CPU, against torch."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from cuda_on_cpu import Kernel
from torch import Tensor

from xtx.kernels.cuda import attention, packed_gpt, transformer_layers
from xtx.kernels.cuda.attention import AttentionPattern, attend
from xtx.kernels.cuda.packed_gpt import compute_packed_logits
from xtx.networks.gpt import GPT, Sizes, TorchDropout

HEADS, DEPTH, LENGTH, ROWS = 2, 8, 90, 2
WIDTH = HEADS * DEPTH


@pytest.fixture(autouse=True)
def on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    """Compiled anew for each test."""

    kept: dict[tuple[str, str, int], Kernel] = {}

    def compile_kernel(file: str, name: str, **sizes: int) -> Kernel:
        [(letter, number)] = sizes.items()
        source = f"#define {letter} {number}\n" + (Path(attention.__file__).parent / file).read_text()
        folder = tmp_path / f"{number}"
        folder.mkdir(exist_ok=True)
        return kept.setdefault((file, name, number), Kernel(source, name, folder))

    monkeypatch.setattr(attention, "compile_kernel", compile_kernel)
    monkeypatch.setattr(transformer_layers, "compile_kernel", compile_kernel)


def scramble(x: np.ndarray) -> np.ndarray:
    x = (x ^ x >> np.uint32(16)) * np.uint32(0x7FEB352D)
    x = (x ^ x >> np.uint32(15)) * np.uint32(0x846CA68B)
    return x ^ x >> np.uint32(16)


def kept(seed: int, queries: int, rate: float) -> Tensor:
    """[rows, heads, queries, LENGTH]: what the weights are multiplied with."""
    place = np.arange(ROWS * HEADS, dtype=np.uint32)
    luck = scramble(np.uint32(seed) + np.uint32(0x9E3779B9) * place)[:, None] + np.arange(queries, dtype=np.uint32)
    keys = np.uint32(0x85EBCA77) * np.arange(LENGTH, dtype=np.uint32)
    drawn = scramble(scramble(luck)[:, :, None] ^ keys).reshape(ROWS, HEADS, queries, LENGTH)
    return torch.from_numpy((drawn >= rate * 2**32) / (1 - rate)).float()


def plainly(query: Tensor, key: Tensor, value: Tensor, at: Tensor, first: Tensor, weights: Tensor) -> Tensor:
    """The same by products of matrices."""

    def heads(x: Tensor) -> Tensor:
        return x.reshape(ROWS, -1, HEADS, DEPTH).transpose(1, 2)

    columns = torch.arange(LENGTH)
    low = first.gather(1, at)[:, None, :, None]
    unseen = (columns > at[:, None, :, None]) | (columns < low)
    scores = (heads(query) @ heads(key).mT / math.sqrt(DEPTH)).masked_fill(unseen, -math.inf)
    return ((scores.softmax(-1) * weights) @ heads(value)).transpose(1, 2).reshape(ROWS, -1, WIDTH)


def scene(seed: int) -> Tensor:
    """[rows, LENGTH]: where the examples begin of which the tokens are."""
    draw = np.random.default_rng(seed)
    cuts = [np.sort(np.r_[0, draw.integers(1, LENGTH, 3)]) for _ in range(ROWS)]
    return torch.from_numpy(np.stack([c[np.searchsorted(c, np.arange(LENGTH), "right") - 1] for c in cuts]))


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("few", [False, True], ids=["all", "some"])
def test_attention_and_its_gradients(rate: float, few: bool) -> None:
    torch.manual_seed(3)
    first = scene(1)
    at = torch.randint(LENGTH, (ROWS, 5)) if few else torch.arange(LENGTH).expand(ROWS, -1)
    asking = torch.randn(ROWS, at.shape[1], WIDTH * (1 if few else 3)).requires_grad_()
    seen = torch.randn(ROWS, LENGTH, 2 * WIDTH).requires_grad_() if few else None
    given = [asking] if seen is None else [asking, seen]
    sight = AttentionPattern(at.int().contiguous(), first.int(), HEADS, rate, torch.tensor([77], dtype=torch.int32))
    ours = attend(asking, seen, sight)
    whole = asking if seen is None else torch.cat((asking, torch.zeros_like(asking), torch.zeros_like(asking)), 2)
    query, key, value = whole.chunk(3, 2)
    if seen is not None:
        key, value = seen.chunk(2, 2)
    plain = plainly(query, key, value, at, first, kept(77, at.shape[1], rate))
    same_gradients(ours, plain, given)


def test_weights_are_dropped_at_the_rate() -> None:
    for rate in (0.1, 0.5):
        dropped = (kept(5, LENGTH, rate) == 0).float()
        assert abs(float(dropped.mean()) - rate) < 0.01
        assert float(dropped.mean((0, 1, 3)).std()) < 0.05 and float(dropped.mean((0, 1, 2)).std()) < 0.05
        assert not torch.equal(kept(5, LENGTH, rate), kept(6, LENGTH, rate))
        assert not torch.equal(dropped[0, 0], dropped[0, 1])


def same_gradients(ours: Tensor, plain: Tensor, of: list[Tensor]) -> None:
    wanted = torch.randn_like(plain)
    torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-4)
    for one, other in zip(
        torch.autograd.grad((ours * wanted).sum(), of), torch.autograd.grad((plain * wanted).sum(), of), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-5 * float(other.abs().max()), rtol=1e-4)


@pytest.mark.parametrize("rows", [1, 33, 300])
def test_layers_have_the_gradients_of_torchs_own(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer_layers, "is_supported", lambda x: True)
    torch.manual_seed(rows)
    norm, dense = torch.nn.LayerNorm(64), torch.nn.Linear(64, 150)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    x = (3 * torch.randn(2, rows, 64) + 1).requires_grad_()
    same_gradients(transformer_layers.layer_norm(x, norm), norm(x), [x, *norm.parameters()])
    same_gradients(transformer_layers.linear(x, dense.weight, dense.bias), dense(x), [x, *dense.parameters()])
    at = torch.randint(rows, (2, 5))
    same_gradients(transformer_layers.take(x, at), x.gather(1, at[:, :, None].expand(-1, -1, 64)), [x])
    flat = x.detach().flatten(0, 1)
    torch.testing.assert_close(transformer_layers.column_sums(flat), flat.sum(0), atol=1e-3, rtol=1e-5)


def test_the_whole_pass_by_kernels_is_the_one_by_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    model = GPT(Sizes(50, layers=3, heads=2, width=32, context=64), torch.Generator().manual_seed(1))
    with torch.no_grad():
        model.words.weight.mul_(20)
    first = torch.tensor([[0] * 20 + [20] * 28, [0] * 30 + [30] * 18])
    places, tokens = torch.arange(48) - first, torch.randint(50, (2, 48))
    at = torch.tensor([[19, 40, 47], [29, 35, 47]])
    parameters = list(model.parameters())
    plain = compute_packed_logits(model, tokens, at, places, first + 1)
    monkeypatch.setattr(transformer_layers, "is_supported", lambda x: True)
    monkeypatch.setattr(packed_gpt, "is_supported", lambda x: True)
    monkeypatch.setattr(attention, "is_supported", lambda width, heads: True)
    same_gradients(compute_packed_logits(model, tokens, at, places, first + 1), plain, parameters)


def test_every_layer_drops_other_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    model = GPT(Sizes(50, layers=3, heads=2, width=32, context=64), torch.Generator().manual_seed(1))
    seen: list[AttentionPattern] = []

    def noted(asking: Tensor, others: Tensor | None, sight: AttentionPattern) -> Tensor:
        seen.append(sight)
        return asking[:, :, :32]

    monkeypatch.setattr(packed_gpt, "is_supported", lambda x: True)
    monkeypatch.setattr(attention, "attend", noted)
    places = torch.arange(20).expand(2, -1)
    compute_packed_logits(model, places, places[:, -2:], places, torch.ones_like(places), TorchDropout(0.25))
    assert len({int(sight.seed) for sight in seen}) == len(seen) == 3
    assert [sight.rate for sight in seen] == [0.25] * 3 and seen[-1].at.tolist() == [[18, 19]] * 2


def test_without_a_compiler_for_kernels_torch_does_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnAGpu:
        is_cuda, dtype = True, torch.float32

    monkeypatch.setattr(torch.cuda, "_compile_kernel", None, raising=False)
    assert transformer_layers.is_supported(OnAGpu())  # type: ignore[arg-type]
    monkeypatch.delattr(torch.cuda, "_compile_kernel")
    assert not transformer_layers.is_supported(OnAGpu())  # type: ignore[arg-type]
