"""Causal networks of transformers behind our interface, against transformers' own forward pass."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from mmrl.models import load_model
from mmrl.models.families import FAMILIES, find_family
from mmrl.models.loading import new_model, save_model
from mmrl.models.network.causal_lm import CausalLM
from mmrl.models.network.causal_vlm import CausalVLM
from mmrl.models.network.token_network import OutputHead
from mmrl.models.quantization import list_quantized
from mmrl.models.quantization_config import QuantizationConfig
from mmrl.pretrained.model_config import LoraConfig, ModelConfig
from mmrl.training.trainable import train_parts
from tests.models.causal import CLOSE, IMAGE, OPEN, SEEING, SIZES, TYPES, write_causal, write_seeing
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
def test_a_cache_changes_nothing_and_a_groups_prompt_is_read_once(
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


def test_new_weights_are_drawn_for_every_matrix() -> None:
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


SHOWN = torch.tensor(
    [
        [0, 0, OPEN, *[IMAGE] * 4, CLOSE, 7, 9, 11, 3],
        [5, OPEN, *[IMAGE] * 2, CLOSE, 6, 5, 12, 13, 14, 15, 16],
        [8, OPEN, *[IMAGE] * 4, CLOSE, 6, 5, 12, 13, 14],
    ]
)
SEEN = (SHOWN != 0).long()
GRIDS = torch.tensor([[1, 4, 4], [1, 2, 4]])
PIXELS = torch.randn(16 + 8, 3 * 2 * 4 * 4, generator=torch.Generator().manual_seed(0))
FEATURES = {"pixel_values": PIXELS, "image_grid_thw": GRIDS, "image_of": torch.tensor([0, 1, 0])}
"""Two images; the first and the last row show the same one."""


@pytest.fixture(params=SEEING)
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[CausalVLM, Any]:
    """A network, and transformers' model of the same weights."""
    model = write_seeing(tmp_path, request.param)
    network = load_model(tmp_path)
    assert isinstance(network, CausalVLM) and find_family(network.public_config).KIND == "causal"
    return network, model


@torch.no_grad()
def test_rows_with_images_and_without_have_the_logits_of_transformers(
    both: tuple[CausalVLM, Any],
) -> None:
    network, model = both
    found = network(SHOWN, SEEN, features=FEATURES).logits
    shown = {"pixel_values": torch.cat((PIXELS, PIXELS[:16])), "image_grid_thw": GRIDS[[0, 1, 0]]}
    kinds = (SHOWN == IMAGE).int()
    expected = model(SHOWN, attention_mask=SEEN, mm_token_type_ids=kinds, **shown).logits
    close(found[:, 3:], expected[:, 2:-1])
    words = torch.tensor([[5, 6, 7, 8]])
    close(network(words).logits[:, 1:], model(words).logits[:, :-1])


@torch.no_grad()
def test_a_row_is_the_row_alone_and_a_cache_changes_nothing(both: tuple[CausalVLM, Any]) -> None:
    network, _ = both
    expected = network(SHOWN, SEEN, features=FEATURES).logits
    one = {"pixel_values": PIXELS[:16], "image_grid_thw": GRIDS[:1], "image_of": torch.tensor([0])}
    close(network(SHOWN[:1, 2:], features=one).logits[0, 1:], expected[0, 3:])
    cache = network.new_cache()
    close(network(SHOWN[:, :8], SEEN[:, :8], features=FEATURES, cache=cache).logits, expected[:, 8])
    cache.take_rows(index := torch.tensor([0, 0, 1, 2]))
    for column in (8, 9, 10):
        read = SHOWN[index, column : column + 1], SEEN[index, : column + 1]
        close(network(*read, cache=cache).logits, expected[index, column + 1])


def test_the_tower_is_frozen_and_its_projection_learns(both: tuple[CausalVLM, Any]) -> None:
    network, _ = both
    for trained, features in ((False, FEATURES), (True, FEATURES), (True, None)):
        network.train_tower(trained)
        network.zero_grad()
        rows = SHOWN if features else SHOWN[:, 8:]
        network(rows, features=features).logits.logsumexp(-1).sum().backward()
        tower = {n: p for n, p in network.named_parameters() if ".visual." in n}
        reached = {name for name, weight in tower.items() if weight.grad is not None}
        assert reached == {name for name in tower if trained or "merger" in name}
        assert bool(tower["body.visual.patch_embed.proj.weight"].requires_grad) == trained
    roles = network.list_layers(network.layer_roles)
    assert len(roles) == 2 * 7 and not any("visual" in name for name in roles)
    for blank in network.blank():
        assert network(**blank).logits.shape == (1, 1, network.vocab_size)


@pytest.mark.parametrize("trained", [True, False])
def test_what_a_tower_keeps_is_counted(both: tuple[CausalVLM, Any], trained: bool) -> None:
    network, _ = both
    network.train_tower(trained)
    counted, _ = network.count_images(6, recompute=False, size=4)
    assert 0.7 < counted / count_kept(network, lambda: network._encode(FEATURES)) < 1.3
    network.requires_grad_(False)
    assert network.count_images(6, recompute=False, size=4)[0] == 0.0


@pytest.mark.parametrize("name", SEEING)
def test_transformers_reads_what_sees_and_is_saved(name: str, tmp_path: Path) -> None:
    model = write_seeing(tmp_path / "given", name)
    save_model(load_model(tmp_path / "given"), tmp_path / "saved")
    kind = AutoModelForImageTextToText
    again = kind.from_pretrained(tmp_path / "saved", dtype=torch.float32)
    for key, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], tensor), key
