"""Skeletons: checkpoints that have everything but the weights of the published ones."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from mmrl.config import ConfigError
from mmrl.models import load_policy
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Prompt
from tests import by_path

script = by_path.load(Path(__file__).parents[2] / "scripts", "make_skeleton")
SIZES = {"llada": (126349, 126336), "dream": (151667, 151666), "sdar": (151670, 151669)}
"""Tokens and mask of each."""


def make(folder: Path, family: str, **options: object) -> Path:
    config = script.Config(
        **{"family": family, "out": str(folder), "layers": 1, "width": 128} | options
    )
    script.make_skeleton(config)
    return folder


@pytest.mark.parametrize(
    ("family", "layers", "width"),
    [("llada", 32, 4096), ("dream", 28, 3584), ("sdar", 36, 4096), ("qwen3", 36, 4096)],
)
def test_at_full_size_the_configuration_is_the_published_one(
    family: str, layers: int, width: int, tmp_path: Path
) -> None:
    full = script.Config(family=family, out=str(tmp_path), layers=layers, width=width)
    published = script.published(script.PUBLISHED.get(family, "llada_8b_instruct"))
    assert script.model_config(full) == published


@pytest.mark.parametrize("family", SIZES)
def test_text_is_written_with_ids_of_the_tokenizer_alone(family: str, tmp_path: Path) -> None:
    folder = make(tmp_path / family, family)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    name, file = next(iter(index["weight_map"].items()))
    with safe_open(folder / file, "pt") as shard:
        assert shard.get_tensor(name).dtype == torch.bfloat16
    policy = load_policy(folder, vq=None, max_prompt_length=64, max_completion_length=8)
    tokenizer = policy.tokenizer
    assert (len(tokenizer), policy.mask_id) == SIZES[family]
    text = "Añb\n<|endoftext|>"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    prompts = [Prompt(text="Why?", id="a", task="text"), Prompt(text="2", id="b", task="text")]
    settings = SamplerConfig(name="static", steps=8, temperature=1.0)
    done = sample(policy, policy.canvas(prompts), settings, torch.Generator().manual_seed(0)).canvas
    assert bool((done.tokens < len(tokenizer)).all()) and not bool(done.masked.any())


def test_a_folder_that_holds_something_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(ConfigError, match="out is .* an empty or a new folder"):
        script.Config(out=str(tmp_path))
    with pytest.raises(ConfigError, match="width is 100; it must be a multiple of 128"):
        script.Config(out=str(tmp_path / "new"), width=100)
