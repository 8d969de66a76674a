"""The network against the public code, against transformers' llama, and against itself."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Generator, Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from mmrl.models import load_model
from mmrl.models.network.core import MaskedTokenModel
from tests.models.networks import FIXTURES, small_core, small_network, write_mmada

LLAMA_NAMES = {
    "embed": "model.embed_tokens",
    "norm": "model.norm",
    "head": "lm_head",
    "attn_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "attn.q": "self_attn.q_proj",
    "attn.k": "self_attn.k_proj",
    "attn.v": "self_attn.v_proj",
    "attn.o": "self_attn.o_proj",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}


@pytest.fixture(scope="module")
def cases() -> dict[str, Tensor]:
    return load_file(FIXTURES / "llada" / "cases.safetensors")


def random_ids(rows: int = 3, length: int = 12, seed: int = 1) -> Tensor:
    return torch.randint(40, (rows, length), generator=Generator().manual_seed(seed))


def close(actual: Tensor, expected: Tensor, tolerance: float = 2e-5) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)


@torch.no_grad()
def test_logits_are_those_of_the_public_code(cases: dict[str, Tensor]) -> None:
    model, ids = load_model(FIXTURES / "llada"), cases["input_ids"]
    logits = model(input_ids=ids).logits
    close(logits, cases["float32/nomask"])
    # the same shapes on the same processor, so the same sums in the same order
    assert torch.equal(model(inputs_embeds=model.embed(ids)).logits, logits)


@torch.no_grad()
def test_bfloat16_logits_are_those_of_the_public_code_up_to_rounding(
    cases: dict[str, Tensor],
) -> None:
    # processors differ in how they sum products of bfloat16, so the last bits are theirs: what can
    # be promised anywhere is to be as near to the float32 logits as the public code was
    model, exact = load_model(FIXTURES / "llada", dtype="bfloat16"), cases["float32/nomask"]
    logits, public = model(input_ids=cases["input_ids"]).logits, cases["bfloat16/nomask"]
    assert logits.dtype == public.dtype == torch.bfloat16
    ours, theirs = ((values.float() - exact).abs() for values in (logits, public))
    assert ours.mean() <= 1.2 * theirs.mean() and ours.max() <= 2 * theirs.max()


@torch.no_grad()
def test_logits_under_a_pairwise_mask_are_those_of_the_public_code(
    cases: dict[str, Tensor],
) -> None:
    model = load_model(FIXTURES / "llada")
    ids, allowed = cases["input_ids"], cases["attention_bias"]
    expected = cases["float32/attention_bias"]
    close(model(input_ids=ids, attention_mask=allowed).logits, expected)
    bias = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)
    close(model(input_ids=ids, attention_mask=bias).logits, expected)


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


@torch.no_grad()
def test_a_row_mask_is_a_bidirectional_padding_mask() -> None:
    model, ids = small_network(), random_ids()
    keep = torch.ones_like(ids)
    keep[0, :5] = keep[1, 9:] = 0
    pairs = (keep[:, None, :, None] * keep[:, None, None, :]).bool()
    masked = model(input_ids=ids, attention_mask=keep).logits
    valid = keep.bool()
    close(masked[valid], model(input_ids=ids, attention_mask=pairs).logits[valid])
    assert (masked - model(input_ids=ids).logits).abs()[0, 5:].max() > 1e-2
    assert masked.isfinite().all()


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


@torch.no_grad()
def test_asking_nowhere_gives_no_logits() -> None:
    nowhere = torch.zeros(3, 12, dtype=torch.bool)
    assert small_network()(input_ids=random_ids(), positions=nowhere).logits.shape == (0, 40)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("tied", [False, True])
@torch.no_grad()
def test_the_core_is_llama_without_the_causal_mask(kv_heads: int, tied: bool) -> None:
    model = small_network(num_kv_heads=kv_heads, tied_head=tied, norm_eps=1e-6)
    llama = llama_of(model, tied)
    ids = random_ids()
    see_all = torch.ones(3, 1, 12, 12, dtype=torch.bool)
    expected = llama(input_ids=ids, attention_mask=see_all).logits
    close(model(input_ids=ids).logits, expected)
    band = (torch.arange(12)[:, None] - torch.arange(12)).abs() < 4
    band = band.expand(3, 1, 12, 12)
    expected = llama(input_ids=ids, attention_mask=band).logits
    close(model(input_ids=ids, attention_mask=band).logits, expected)


def llama_of(model: MaskedTokenModel, tied: bool) -> LlamaForCausalLM:
    core = model.core
    config = LlamaConfig(
        hidden_size=core.hidden_size,
        num_hidden_layers=core.num_layers,
        num_attention_heads=core.num_heads,
        num_key_value_heads=core.num_kv_heads,
        intermediate_size=core.mlp_size,
        vocab_size=core.vocab_size,
        rms_norm_eps=core.norm_eps,
        rope_theta=core.rope_theta,
        tie_word_embeddings=tied,
        attn_implementation="sdpa",
    )
    llama = LlamaForCausalLM(config).eval()
    llama.load_state_dict({llama_name(name): value for name, value in model.state_dict().items()})
    return llama


def llama_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if not stem.startswith("blocks."):
        return f"{LLAMA_NAMES[stem]}.weight"
    _, block, layer = stem.split(".", 2)
    return f"model.layers.{block}.{LLAMA_NAMES[layer]}.weight"


@torch.no_grad()
def test_both_attention_kernels_agree() -> None:
    model, ids = small_network(), random_ids()
    keep = torch.ones_like(ids, dtype=torch.bool)
    keep[0, :5] = False
    pairs = keep[:, None, :, None] & keep[:, None, None, :] | torch.eye(12, dtype=torch.bool)
    for mask in (None, keep, pairs):
        model.set_attention("sdpa")
        expected = model(input_ids=ids, attention_mask=mask).logits
        model.set_attention("eager")
        close(model(input_ids=ids, attention_mask=mask).logits, expected)


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
def test_qkv_bias_and_norms_of_queries_and_keys_take_part() -> None:
    ids = random_ids()
    plain = small_network(qkv_bias=True, qk_norm=True)
    before = plain(input_ids=ids).logits
    for name, parameter in plain.named_parameters():
        if name.endswith(".bias") or "q_norm" in name:
            parameter.add_(torch.linspace(0.1, 1, parameter.numel()))
    assert (plain(input_ids=ids).logits - before).abs().max() > 1e-2


@torch.no_grad()
def test_rotary_frequencies_stay_exact_in_a_model_cast_down() -> None:
    model = small_network()
    assert not dict(model.named_buffers())
    assert model.bfloat16()(input_ids=random_ids()).logits.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        ({}, "exactly one"),
        ({"input_ids": random_ids(), "inputs_embeds": torch.zeros(3, 12, 32)}, "exactly one"),
        ({"input_ids": random_ids(), "attention_mask": torch.ones(3, 11)}, r"\(3, 11\)"),
    ],
)
def test_inputs_that_do_not_fit_are_named(inputs: dict[str, Tensor], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        small_network()(**inputs)


def test_an_unknown_attention_kernel_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'flash'.*sdpa, eager"):
        small_network().set_attention("flash")


def test_a_tied_head_is_the_embedding() -> None:
    model = MaskedTokenModel(small_core(tied_head=True))
    assert model.head.weight is model.embed.weight


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


@torch.no_grad()
def test_positions_that_count_along_the_row_change_nothing_and_others_do() -> None:
    model = small_network()
    ids = torch.arange(12).view(1, 12) % 7
    counted = model(input_ids=ids, position_ids=torch.arange(12)[None]).logits
    assert torch.equal(counted, model(input_ids=ids).logits)
    halved = model(input_ids=ids, position_ids=torch.arange(12)[None] // 2).logits
    assert not torch.allclose(counted, halved, atol=1e-3)


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
