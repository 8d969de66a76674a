"""aMUSEd: the network of diffusers as a policy, and directories of its pipeline in and out."""

import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mmrl.models import Policy, load_policy
from mmrl.models.loading import load_model
from mmrl.models.network.uvit import UVit
from mmrl.pretrained.checks import check_checkpoints
from mmrl.pretrained.known import Known
from mmrl.pretrained.model_config import LoraConfig, ModelConfig
from mmrl.training.adapter import add_adapter
from mmrl.types import Prompt
from tests.models.amused import CODES, MASK, TEXT_LENGTH, write_amused

diffusers = pytest.importorskip("diffusers")
PROMPTS = [Prompt("0", "text_to_image", "a red cat"), Prompt("1", "text_to_image", "two long dogs")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_amused(tmp_path_factory.mktemp("amused") / "pipeline")


@pytest.fixture(scope="module")
def policy(folder: Path) -> Policy:
    return load_policy(folder)


def public_logits(transformer: Any, policy: Policy, tokens: Tensor) -> Tensor:
    """[B, n, C]: what diffusers' model says of rows."""
    network = policy.network
    assert isinstance(network, UVit)
    text, codes = tokens[:, :TEXT_LENGTH] - MASK - 1, tokens[:, TEXT_LENGTH:]
    side = round(codes.shape[1] ** 0.5)
    sizes = torch.tensor([[2.0 * side, 2.0 * side, 0, 0, 6]]).expand(len(tokens), -1)
    with torch.no_grad():
        logits = transformer(codes.view(-1, side, side), *network.encode(text), sizes)
    return logits.flatten(2).transpose(1, 2)


def test_logits_are_those_of_diffusers_at_the_places_and_codes_asked_for(
    policy: Policy, folder: Path
) -> None:
    canvas = policy.canvas(PROMPTS)
    assert (canvas.columns, canvas.mask_id, canvas.grid) == ((0, CODES), MASK, (4, 4))
    tokens = canvas.tokens.clone()
    tokens[:, TEXT_LENGTH + 3 :] = torch.randint(0, CODES, (2, 13))
    transformer = diffusers.UVit2DModel.from_pretrained(folder / "transformer")
    expected = public_logits(transformer, policy, tokens)
    found = policy.model(input_ids=tokens).logits
    assert found.shape == (2, TEXT_LENGTH + 16, CODES)
    torch.testing.assert_close(found[:, TEXT_LENGTH:], expected, atol=2e-5, rtol=0)
    some = tokens == MASK
    few = policy.model(input_ids=tokens, positions=some, columns=(8, 20)).logits
    torch.testing.assert_close(few, expected[some[:, TEXT_LENGTH:]][:, 8:20], atol=2e-5, rtol=0)


def test_each_prompt_is_encoded_once(folder: Path) -> None:
    network = load_model(folder)
    assert isinstance(network, UVit) and network.parts is not None
    calls: list[Any] = []
    network.parts.encoders.text_encoder.register_forward_hook(lambda *given: calls.append(given))
    rows = load_policy(folder).canvas(PROMPTS).tokens
    for _ in range(3):
        network(input_ids=rows.repeat(2, 1))
    assert len(calls) == 2
    other = deepcopy(network)
    assert other.parts is network.parts
    assert other.double()(input_ids=rows).logits.dtype == torch.float64
    assert len(calls) == 2


def test_a_saved_policy_is_a_pipeline_of_diffusers(
    policy: Policy, folder: Path, tmp_path: Path
) -> None:
    state = {name: 2 * tensor for name, tensor in policy.network.state_dict().items()}
    policy.save(tmp_path / "final", state=state)
    pipeline = diffusers.AmusedPipeline.from_pretrained(tmp_path / "final")
    before = diffusers.UVit2DModel.from_pretrained(folder / "transformer").state_dict()
    for name, tensor in pipeline.transformer.state_dict().items():
        assert torch.equal(tensor, 2 * before[name]), name
    assert {path.name for path in (tmp_path / "final").iterdir()} == {
        path.name for path in folder.iterdir()
    }
    again = load_policy(tmp_path / "final")
    assert torch.equal(again.canvas(PROMPTS).tokens, policy.canvas(PROMPTS).tokens)


def test_an_adapter_is_one_of_peft_and_is_merged_where_it_is_loaded(
    policy: Policy, folder: Path, tmp_path: Path
) -> None:
    from peft import PeftModel

    network = load_model(folder)
    add_adapter(network, LoraConfig(r=2), 0, str(folder))
    draw = torch.Generator().manual_seed(0)
    adapted = set()
    for name, parameter in network.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1, generator=draw)
            adapted.add(name.split(".lora_B")[0].removeprefix("transformer."))
    linear = {"attn1.to_q", "attn2.to_out.0", "ff.net.0.proj", "ff.net.2"}
    assert {f"transformer_layers.1.{name}" for name in linear} <= adapted
    Policy(network, policy.tokenizer, {}, network).save(tmp_path / "adapter")

    tokens = policy.canvas(PROMPTS).tokens
    expected = network(input_ids=tokens).logits[:, TEXT_LENGTH:]
    merged = load_policy(tmp_path / "adapter", vq=folder / "vqvae")
    found = merged.network(input_ids=tokens).logits[:, TEXT_LENGTH:]
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)
    public = diffusers.UVit2DModel.from_pretrained(folder / "transformer")
    public = PeftModel.from_pretrained(public, tmp_path / "adapter")
    found = public_logits(public, policy, tokens)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("part", ["transformer", "vqvae", "text_encoder"])
def test_a_part_without_weights_is_refused_before_one_loads(
    folder: Path, tmp_path: Path, part: str
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    for path in (broken / part).glob("*.safetensors"):
        path.unlink()
    with pytest.raises(FileNotFoundError, match=f"{part}' holds no weights"):
        check_checkpoints(Known.read(ModelConfig(path=str(broken))))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda t: t.fill_(float("nan")), "as torch.float32 holds .* NaN"),
        (lambda t: t.to(torch.int8), "is I8; weights are"),
        (None, "text_encoder lacks text_model"),
    ],
)
def test_a_text_encoder_is_checked_as_the_network_is(
    change: Callable[[Tensor], Tensor] | None, named: str, folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "text_encoder" / "model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("mlp.fc1.weight"))
    weight = tensors.pop(name)
    save_file(tensors | ({name: change(weight)} if change else {}), file, {"format": "pt"})
    with pytest.raises(ValueError, match=f"text.encoder.*{named}"):
        load_policy(tmp_path)
