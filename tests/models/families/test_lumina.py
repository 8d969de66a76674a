"""Lumina-DiMOO: which configurations are of it, its logits, and what its tokenizer must have."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mmrl.config import ConfigError
from mmrl.models import load_policy
from mmrl.models.families import FAMILIES, find_family
from mmrl.models.loading import save_model
from mmrl.pretrained.checks import check_task
from mmrl.pretrained.known import Known, own_vq
from mmrl.pretrained.model_config import ModelConfig
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Prompt
from tests.models.llada_tokenizer import LUMINA, llada_tokenizer
from tests.models.lumina import FIXTURE, draw_network, write_vq


def test_the_class_or_the_rows_tell_it_from_llada() -> None:
    raw = json.loads((FIXTURE / "config.json").read_text())
    assert raw["model_type"] == "llada" and find_family(raw) is FAMILIES["lumina"]
    assert find_family({**raw, "architectures": ["LLaDAModelLM"]}) is FAMILIES["lumina"]
    small = {**raw, "vocab_size": 512, "embedding_size": 512}
    assert find_family(small) is FAMILIES["lumina"]
    assert find_family({**small, "architectures": ["LLaDAModelLM"]}) is FAMILIES["llada"]


@torch.no_grad()
def test_logits_are_those_of_the_public_code() -> None:
    cases = load_file(FIXTURE / "cases.safetensors")
    for ids, name in (("t2i/prompt0/4x4/ids", "t2i"), ("raw/input_ids", "raw/nomask")):
        expected, given = cases[f"logits/{name}/every997"], cases[ids].long()
        logits = draw_network()(input_ids=given.view(-1, given.shape[-1])).logits.squeeze(0)
        torch.testing.assert_close(logits[..., ::997], expected, atol=2e-5, rtol=1e-5)
        assert logits.argmax(-1).tolist() == cases[f"logits/{name}/argmax"].tolist()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole checkpoint in the published layout, its image tokenizer in the folder `vqvae`."""
    pytest.importorskip("diffusers")
    directory = tmp_path_factory.mktemp("lumina")
    save_model(draw_network(), directory)
    llada_tokenizer(LUMINA, 126356).save_pretrained(directory)
    write_vq(directory / "vqvae")
    (directory / "model_index.json").write_text('{"_class_name": "LuminaDiMOOPipeline"}')
    return directory


def test_a_checkpoint_brings_its_image_tokenizer_and_an_export_takes_it_along(
    checkpoint: Path, tmp_path: Path
) -> None:
    policy = load_policy(checkpoint, image_size=32, image_width=64)
    policy.save(tmp_path)
    assert (tmp_path / "model_index.json").is_file()
    again = load_policy(tmp_path, image_size=32, image_width=64)
    prompt = Prompt("", "text_to_image", "a cat")
    config = SamplerConfig(name="lumina", steps=2, cfg_scale=4.0)
    images = []
    for loaded in (policy, again):
        canvas = loaded.canvas([prompt])
        assert canvas.grid == (2, 4) and canvas.columns == (126356, 134548)
        done = sample(loaded, canvas, config, torch.Generator().manual_seed(0))
        images += loaded.decode(done.canvas, [prompt])
    assert images[0].size == (64, 32) and images[0].tobytes() == images[1].tobytes()


def test_a_checkpoint_of_the_hub_brings_its_image_tokenizer_as_well() -> None:
    model = ModelConfig(path="Alpha-VLLM/Lumina-DiMOO", image_size=512)
    assert own_vq(model) == model.path
    assert check_task(Known.read(model), "text_to_image", "here") == 1024
    assert own_vq(replace(model, vq="owner/vq")) == "owner/vq"
    with pytest.raises(ConfigError, match="model.image_size is 500.*multiple of 16"):
        check_task(Known.read(replace(model, image_size=500)), "text_to_image", "here")
    assert own_vq(replace(model, path="Gen-Verse/MMaDA-8B-MixCoT")) == "showlab/magvitv2"
