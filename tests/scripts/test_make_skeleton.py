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
from tests.models.families.test_hub_configs import LLADA_V, config

script = by_path.load(Path(__file__).parents[2] / "scripts", "make_skeleton")


def make(folder: Path, family: str, **options: object) -> Path:
    sizes = {"layers": 1, "width": 128, "tower": "small", **options}
    script.make_skeleton(script.Config(family=family, out=str(folder), **sizes))
    return folder


def test_configurations_have_the_keys_values_and_types_of_the_published_ones() -> None:
    made = script.llada_config(32, 4096)
    recorded = config("llada_8b_instruct")
    assert made == recorded
    assert {key: type(value) for key, value in made.items()} == {
        key: type(value) for key, value in recorded.items()
    }
    assert script.dream_config(28, 3584) == config("diffucoder_7b_instruct")
    assert script.sdar_config(36, 4096) == config("sdar_8b_chat")
    made = script.mmada_config(32, 4096)
    assert {key: made[key] for key in config("mmada_parallel_m")} == config("mmada_parallel_m")
    made = script.llada_v_config(32, 4096)
    assert {key: made[key] for key in LLADA_V if key in made} == {
        key: value for key, value in LLADA_V.items() if key in made
    }
    assert set(LLADA_V) <= {*made, "bos_token_id", "initializer_range"}


@pytest.fixture(scope="module")
def llada(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("skeletons") / "llada", "llada")


def test_weights_are_bfloat16_shards_that_the_index_lists(llada: Path) -> None:
    index = json.loads((llada / "model.safetensors.index.json").read_text())
    total = 0
    for name, file in index["weight_map"].items():
        with safe_open(llada / file, "pt") as shard:
            tensor = shard.get_tensor(name)
        assert tensor.dtype == torch.bfloat16
        total += tensor.nbytes
    assert total == index["metadata"]["total_size"]
    assert len(set(index["weight_map"].values())) > 1


def test_text_is_written_with_ids_of_the_tokenizer_alone(llada: Path) -> None:
    policy = load_policy(llada, vq=None, max_prompt_length=64, max_completion_length=8)
    tokenizer = policy.tokenizer
    assert len(tokenizer) == 126349 and tokenizer.mask_token is None and policy.mask_id == 126336
    text = "Añb\n<|eot_id|>"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    prompts = [Prompt(text="Why?", id="a", task="text"), Prompt(text="2", id="b", task="text")]
    settings = SamplerConfig(name="static", steps=8, temperature=1.0)
    rollout = sample(policy, policy.canvas(prompts), settings, torch.Generator().manual_seed(0))
    written = rollout.canvas.tokens[rollout.canvas.response]
    assert bool((written < len(tokenizer)).all()) and bool((written != policy.mask_id).all())
    assert all(isinstance(text, str) for text in policy.decode(rollout.canvas, prompts))


def test_a_skeleton_of_the_base_model_lacks_turns_until_it_is_loaded(tmp_path: Path) -> None:
    folder = make(tmp_path / "base", "llada", base=True)
    assert "<|eot_id|>" not in json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    policy = load_policy(folder, vq=None)
    assert len(policy.tokenizer) == 126349
    assert policy.tokenizer.get_vocab()["<|eot_id|>"] == 126348
    policy.save(tmp_path / "again")
    assert len(load_policy(tmp_path / "again", vq=None).tokenizer) == 126349


@pytest.mark.slow
def test_each_family_loads_with_its_tasks(tmp_path: Path) -> None:
    vq = make(tmp_path / "vq", "magvitv2", width=32)
    mmada = load_policy(make(tmp_path / "mmada", "mmada"), vq=vq)
    assert set(mmada.layouts) == {"text", "text_to_image", "image_to_text", "image_edit"}
    prompts = [Prompt(text="a cat", id="a", task="text_to_image")]
    canvas = mmada.canvas(prompts)
    assert int(canvas.response.sum()) == 1024 and canvas.vocab == (126349, 126349 + 8192)
    seeing = load_policy(make(tmp_path / "v", "llava_llada"), vq=None)
    assert set(seeing.layouts) == {"text", "image_to_text"}


def test_a_folder_that_holds_something_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(ConfigError, match="out is .* an empty or a new folder"):
        script.Config(out=str(tmp_path))
    with pytest.raises(ConfigError, match="width is 100; it must be a multiple of 128"):
        script.Config(out=str(tmp_path / "new"), width=100)


def test_a_skeleton_of_dream_writes_text_of_its_tokenizer(tmp_path: Path) -> None:
    folder = make(tmp_path / "dream", "dream")
    assert not (folder / "tokenizer.json").exists()
    policy = load_policy(folder, vq=None, max_completion_length=8)
    assert len(policy.tokenizer) == 151667 and policy.mask_id == 151666
    canvas = policy.canvas([Prompt(text="Why?", id="a", task="text")])
    settings = SamplerConfig(name="origin", steps=4, temperature=1.0)
    done = sample(policy, canvas, settings, torch.Generator().manual_seed(0)).canvas
    assert bool((done.tokens < 151667).all()) and not bool(done.masked.any())


def test_a_skeleton_of_sdar_writes_block_by_block_with_the_public_mask(tmp_path: Path) -> None:
    policy = load_policy(make(tmp_path / "SDAR-8B-Chat-b8", "sdar"), vq=None)
    assert len(policy.tokenizer) == 151670 and policy.mask_id == 151669
    canvas = policy.canvas([Prompt(text="Why?", id="a", task="text")], 16)
    assert canvas.block_size == 8
    settings = SamplerConfig(name="static", steps=4, cache="prefix")
    done = sample(policy, canvas, settings, torch.Generator().manual_seed(0)).canvas
    assert bool((done.tokens < 151669).all())
