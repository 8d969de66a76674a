"""Causal networks of transformers behind our interface, against transformers' own forward pass."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from mmrl.models import load_model
from mmrl.models.families import FAMILIES, find_family
from mmrl.models.loading import new_model, save_model
from mmrl.models.network.causal_lm import CausalLM
from mmrl.models.network.output_head import OutputHead
from mmrl.models.quantization import list_quantized
from mmrl.models.quantization_config import QuantizationConfig
from mmrl.pretrained.model_config import LoraConfig, ModelConfig
from mmrl.training.trainable import train_parts
from tests.models.causal import SIZES, TYPES, write_causal
from tests.models.kept_bytes import count_kept

ROWS = torch.tensor([[0, 0, 0, 7, 11, 5, 9, 30], [3, 8, 12, 40, 2, 6, 21, 14]])
MASK = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1], [1] * 8])
every_type = pytest.mark.parametrize("name", TYPES)


def load(folder: Path, name: str = "qwen3", **options: Any) -> tuple[CausalLM, Any]:
    """A network, and transformers' model of the same weights."""
    model = write_causal(folder, name)
    network = load_model(folder, **options)
    assert isinstance(network, CausalLM) and find_family(network.public_config).KIND == "causal"
    return network, model


def close(one: Tensor, other: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


@every_type
def test_logits_at_a_position_are_those_that_transformers_has_before_it(
    name: str, tmp_path: Path
) -> None:
    network, model = load(tmp_path, name)
    positions = torch.zeros(2, 8, dtype=torch.bool)
    positions[0, 5:], positions[1, 1:4] = True, True
    with torch.no_grad():
        both = model(ROWS, attention_mask=MASK, position_ids=(MASK.cumsum(1) - 1).clamp(min=0))
        found = network(ROWS, MASK, positions=positions, columns=(4, 30)).logits
        close(found, both.logits[:, :-1][positions[:, 1:]][:, 4:30])
        close(network(ROWS[1:]).logits[0, 1:], model(ROWS[1:]).logits[0, :-1])


@every_type
def test_a_padded_row_equals_the_row_alone(name: str, tmp_path: Path) -> None:
    network, _ = load(tmp_path, name, dtype="float64")
    with torch.no_grad():
        close(network(ROWS, MASK).logits[0, 3:], network(ROWS[:1, 3:]).logits[0], 1e-6)


@every_type
def test_a_cache_changes_nothing_and_a_prompt_of_a_group_is_read_once(
    name: str, tmp_path: Path
) -> None:
    network, _ = load(tmp_path, name)
    with torch.no_grad():
        cache = network.new_cache()
        network(ROWS[:, :5], MASK[:, :5], cache=cache)
        cache.take_rows(torch.tensor([0, 0, 1]))
        rows, mask = ROWS[[0, 0, 1]].clone(), MASK[[0, 0, 1]]
        rows[1, 5:] = torch.tensor([20, 22, 24])
        expected = network(rows, mask).logits
        for column in (5, 6):
            one = slice(column, column + 1)
            found = network(rows[:, one], mask[:, : column + 1], cache=cache).logits
            close(found, expected[:, column + 1])
        assert cache.length == 7


def test_only_the_asked_positions_reach_the_head(tmp_path: Path) -> None:
    network, _ = load(tmp_path)
    positions = torch.zeros(2, 8, dtype=torch.bool)
    positions[:, 6] = True
    shapes = []

    def reduce(hidden: Tensor, head: OutputHead) -> Tensor:
        shapes.append(tuple(hidden.shape))
        return head(hidden).logsumexp(-1)

    assert network(ROWS, MASK, positions=positions, reduce=reduce).logits.shape == (2,)
    assert shapes == [(2, SIZES["hidden_size"])]


@every_type
def test_blocks_that_are_computed_again_give_the_same_gradient(name: str, tmp_path: Path) -> None:
    network, _ = load(tmp_path, name)
    gradients = []
    for network.gradient_checkpointing in (False, True):
        network.zero_grad()
        network(ROWS, MASK).logits[:, 4:].logsumexp(-1).sum().backward()
        gradients.append(
            {n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}
        )
    assert gradients[0].keys() == gradients[1].keys() == dict(network.named_parameters()).keys()
    for key, gradient in gradients[0].items():
        assert torch.equal(gradient, gradients[1][key]), key


@every_type
def test_transformers_reads_what_is_saved(name: str, tmp_path: Path) -> None:
    network, model = load(tmp_path / "given", name)
    save_model(network, tmp_path / "saved")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", dtype=torch.float32).eval()
    with torch.no_grad():
        assert torch.equal(again(ROWS).logits, model(ROWS).logits)
        assert torch.equal(load_model(tmp_path / "saved")(ROWS).logits, network(ROWS).logits)


def test_an_adapter_is_that_of_peft_on_transformers_model(tmp_path: Path) -> None:
    import peft

    network, model = load(tmp_path / "base")
    settings = LoraConfig(r=3, target_modules=["q", "down"])
    train_parts(network, ModelConfig(path=str(tmp_path / "base"), lora=settings), 0)
    for parameter in (p for p in network.parameters() if p.requires_grad):
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=torch.manual_seed(1))
    save_model(network, tmp_path / "adapter")
    public = peft.PeftModel.from_pretrained(model, str(tmp_path / "adapter"))
    with torch.no_grad():
        close(public(ROWS).logits[:, :-1], network(ROWS).logits[:, 1:])
        close(load_model(tmp_path / "adapter")(ROWS).logits, network(ROWS).logits)


def test_the_matrices_of_blocks_are_held_in_4_bits(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    write_causal(tmp_path, deviation=0.1, hidden_size=64, intermediate_size=64, head_dim=16)
    whole = load_model(tmp_path)
    packed = load_model(tmp_path, quantization_config=QuantizationConfig())
    names = list_quantized(whole)
    assert len(names) == 2 * 7 and all(packed.get_parameter(n).dtype == torch.uint8 for n in names)
    with torch.no_grad():
        error = (packed(ROWS).logits - whole(ROWS).logits).std() / whole(ROWS).logits.std()
    assert 0 < float(error) < 0.5


@pytest.mark.parametrize("name", ["qwen3", "llama"])
def test_activations_are_counted_as_they_are_kept(name: str, tmp_path: Path) -> None:
    network, _ = load(tmp_path, name)
    counted, _ = network.count_activations(ROWS.shape[1], recompute=False, size=4)
    kept = count_kept(network, lambda: network.hidden_states(ROWS))
    assert 0.8 < len(ROWS) * counted / kept < 1.3


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_attention_kernels_agree(kernel: str, tmp_path: Path) -> None:
    network, _ = load(tmp_path)
    with torch.no_grad():
        expected = network(ROWS, MASK).logits[:, 4:]
        with network.attention(kernel):
            close(network(ROWS, MASK).logits[:, 4:], expected)


def test_new_weights_are_drawn_for_every_matrix(tmp_path: Path) -> None:
    raw = {**SIZES, **TYPES["qwen3-tied"]}
    network = new_model(raw, torch.Generator().manual_seed(0))
    for name, parameter in network.named_parameters():
        small = name.endswith(("o_proj.weight", "down_proj.weight"))
        if parameter.ndim > 1:
            assert float(parameter.detach().std()) == pytest.approx(
                0.01 if small else 0.02, rel=0.2
            ), name


def test_a_model_that_changes_its_logits_is_refused() -> None:
    raw = {**SIZES, **TYPES["llama"], "final_logit_softcapping": 30.0}
    with pytest.raises(ValueError, match="final_logit_softcapping is 30.0"):
        FAMILIES["causal_lm"].network(raw)
