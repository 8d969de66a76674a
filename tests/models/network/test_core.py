"""The network against the public code, against transformers' llama, and against itself."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Generator, Tensor

from mmrl.models import load_model
from tests.models.networks import FIXTURES, small_network, write_mmada

CASES_OF = "llada"


def random_ids(rows: int = 3, length: int = 12, seed: int = 1) -> Tensor:
    return torch.randint(40, (rows, length), generator=Generator().manual_seed(seed))


def close(actual: Tensor, expected: Tensor, tolerance: float = 2e-5) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)


@torch.no_grad()
def test_logits_are_those_of_the_public_code(cases: dict[str, Tensor]) -> None:
    model, ids = load_model(FIXTURES / "llada"), cases["input_ids"]
    close(model(input_ids=ids).logits, cases["float32/nomask"])


@torch.no_grad()
def test_bfloat16_logits_are_the_public_codes_up_to_rounding(cases: dict[str, Tensor]) -> None:
    # processors differ in how they sum products of bfloat16, so the last bits are theirs: what can
    # be promised anywhere is to be as near to the float32 logits as the public code was
    model, exact = load_model(FIXTURES / "llada", dtype="bfloat16"), cases["float32/nomask"]
    logits, public = model(input_ids=cases["input_ids"]).logits, cases["bfloat16/nomask"]
    assert logits.dtype == public.dtype == torch.bfloat16
    ours, theirs = ((values.float() - exact).abs() for values in (logits, public))
    assert ours.mean() <= 1.2 * theirs.mean() and ours.max() <= 2 * theirs.max()


@torch.no_grad()
def test_logits_under_a_pair_mask_are_those_of_the_public_code(cases: dict[str, Tensor]) -> None:
    model = load_model(FIXTURES / "llada")
    ids, allowed = cases["input_ids"], cases["attention_bias"]
    expected = cases["float32/attention_bias"]
    close(model(input_ids=ids, attention_mask=allowed).logits, expected)


@torch.no_grad()
def test_a_row_under_padding_equals_the_row_alone() -> None:
    model, ids = small_network(), random_ids()
    keep = torch.ones_like(ids, dtype=torch.bool)
    keep[1, 8:] = False
    together = model(input_ids=ids, attention_mask=keep).logits
    close(together[1, :8], model(input_ids=ids[1:2, :8]).logits[0])
    left = torch.ones_like(keep)
    left[1, :4] = False
    # rotary angles depend on differences only, so a shift by the padding changes nothing
    close(
        model(input_ids=ids, attention_mask=left).logits[1, 4:],
        model(input_ids=ids[1:2, 4:]).logits[0],
        1e-4,
    )


@pytest.mark.parametrize("kind", [None, "row", "pair"])
@torch.no_grad()
def test_requested_logits_are_a_cut_of_all_logits(kind: str | None) -> None:
    model, ids = small_network(num_kv_heads=2), random_ids()
    asked = torch.rand(ids.shape, generator=Generator().manual_seed(2)) < 0.4
    asked[1] = False
    mask = None
    if kind is not None:
        mask = torch.rand(ids.shape, generator=Generator().manual_seed(3)) < 0.7
        mask[:, 0] = True
    if kind == "pair":
        mask = mask[:, None, :, None] & mask[:, None, None, :] | torch.eye(12, dtype=torch.bool)
    whole = model(input_ids=ids, attention_mask=mask).logits
    cut = model(input_ids=ids, attention_mask=mask, positions=asked, columns=(7, 31)).logits
    assert cut.shape == (int(asked.sum()), 24)
    close(cut, whole[asked][:, 7:31])
    close(model(input_ids=ids, attention_mask=mask, columns=(7, 31)).logits, whole[..., 7:31])


def test_gradient_checkpointing_changes_no_gradient() -> None:
    model, ids = small_network(), random_ids()
    asked = torch.zeros_like(ids, dtype=torch.bool)
    asked[:, 3:7] = True
    gradients = []
    for checkpointing in (False, True):
        model.gradient_checkpointing = checkpointing
        model.zero_grad()
        model(input_ids=ids, positions=asked, columns=(0, 20)).logits.square().mean().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for plain, checkpointed in zip(*gradients, strict=True):
        assert torch.equal(plain, checkpointed)


@torch.no_grad()
def test_two_texts_of_a_row_with_restarted_positions_have_the_logits_of_each_alone() -> None:
    model = small_network()
    ids = torch.arange(12).view(1, 12) % 7
    own = torch.tensor([[0] * 5 + [1] * 7])
    mask = (own[:, :, None] == own[:, None, :])[:, None]
    places = torch.cat((torch.arange(5), torch.arange(7)))[None]
    wanted = torch.arange(12)[None] % 3 == 0
    packed = model(input_ids=ids, attention_mask=mask, positions=wanted, position_ids=places).logits
    alone = torch.cat([model(input_ids=part).logits[0] for part in (ids[:, :5], ids[:, 5:])])
    torch.testing.assert_close(packed, alone[wanted[0]], rtol=0, atol=1e-5)


def test_the_mlp_keeps_fewer_activations_and_has_the_same_gradients() -> None:
    mlp: Any = small_network().blocks[0].mlp
    draw = Generator().manual_seed(0)
    x = torch.randn(3, 7, mlp.gate.in_features, generator=draw, requires_grad=True)

    def plain() -> Tensor:
        return mlp.down(torch.nn.functional.silu(mlp.gate(x)) * mlp.up(x))

    def run(compute: Any) -> tuple[list[Tensor], int]:
        kept: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            if not isinstance(tensor, torch.nn.Parameter):
                kept[tensor.data_ptr()] = tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            result = compute()
            numbers = sum(kept.values())
        inputs = [x, *mlp.parameters()]
        return [result, *torch.autograd.grad(result.square().sum(), inputs)], numbers

    (found, fewer), (expected, more) = run(lambda: mlp(x)), run(plain)
    assert all(map(torch.equal, found, expected))
    assert more - fewer == 3 * 7 * mlp.gate.out_features


@torch.no_grad()
def test_logits_over_the_image_codes_are_those_of_the_public_code(tmp_path: Path) -> None:
    model = load_model(write_mmada(tmp_path))
    cases = load_file(FIXTURES / "mmada" / "cases.safetensors")
    ids, keep = (cases[f"layouts/t2i_gen/{i}"] for i in range(2))
    pairs = (keep[:, None, :, None] * keep[:, None, None, :]).bool()
    for mask, name in ((None, "nomask"), (pairs, "attention_bias")):
        logits = model(input_ids=ids, attention_mask=mask, columns=(126349, 134541)).logits
        close(logits[..., ::97], cases[f"logits/{name}/every97"])
        assert torch.equal(logits.argmax(-1), cases[f"logits/{name}/argmax"])
