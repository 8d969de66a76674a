"""What a task needs of a checkpoint is known from its family, before anything is loaded."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mmrl.config import ConfigError
from mmrl.data.prompts import load_prompts
from mmrl.models import load_policy
from mmrl.models.families import FAMILIES
from mmrl.pretrained.checks import (
    check_checkpoints,
    check_network_blocks,
    check_prompts,
    check_task,
)
from mmrl.pretrained.known import Known
from mmrl.pretrained.model_config import ModelConfig
from mmrl.samplers import SamplerConfig
from tests.models.networks import write_small_llada_v, write_small_mmada

QUESTION = '{"prompt": "which?", "image": "one.png"}\n'


def checkpoint(folder: Path, family: str, **options: Any) -> ModelConfig:
    (folder / "config.json").write_text(json.dumps({"model_type": family}))
    return ModelConfig(path=str(folder), **options)


def test_a_policy_can_do_what_its_family_says(tmp_path: Path) -> None:
    for name, write in (("llava_llada", write_small_llada_v), ("mmada", write_small_mmada)):
        folder = tmp_path / name
        folder.mkdir()
        vq = write(folder) / "vq"
        policy = load_policy(folder, vq=vq if vq.is_dir() else None)
        assert {name: type(task) for name, task in policy.layouts.items()} == FAMILIES[name].LAYOUTS


@pytest.mark.parametrize(
    ("family", "vq", "task", "named"),
    [
        ("llada", None, "image_to_text")
        + ("of type llava_llada or lumina or mmada or qwen2_5_vl or qwen3_vl for x",),
        ("mmada", None, "image_to_text", "model.vq is None; it must be an image tokenizer for x"),
        ("mmada", None, "text_to_image", "model.vq is None; it must be an image tokenizer for x"),
    ],
)
def test_a_checkpoint_that_lacks_what_a_task_needs_is_refused(
    family: str, vq: str | None, task: str, named: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=named):
        check_task(Known.read(checkpoint(tmp_path, family, vq=vq)), task, "for x")


def test_images_in_prompts_must_be_whole_numbers_of_tokens_and_no_tower_can_be_trained(
    tmp_path: Path,
) -> None:
    model = checkpoint(tmp_path, "mmada", image_size=500)
    with pytest.raises(ConfigError, match="model.image_size is 500; it must be a multiple of 16"):
        check_task(Known.read(model), "image_to_text", "for x")
    with pytest.raises(ConfigError, match="a checkpoint with a vision tower to train"):
        check_checkpoints(Known.read(checkpoint(tmp_path, "mmada", train_vision_tower=True)))


@pytest.mark.parametrize(
    ("model", "sampler", "length", "named"),
    [
        ({"block_size": 8}, {"block_size": 4, "steps": 8}, 16, r"it must be null or 8, the block"),
        ({}, {"steps": 6}, None, r"x\.steps is 6; it must be a multiple of the 64 blocks of 4"),
        ({"block_alignment": "right"}, {"steps": 5}, 18)
        + (r"n is 18; it must be a multiple of 4, the",),
        ({"block_alignment": "left"}, {"steps": 5}, 18, ""),
        ({"block_size": 8}, {"steps": 8}, 16, ""),
    ],
)
def test_a_sampler_fits_the_blocks_of_the_network(
    model: dict[str, Any], sampler: dict[str, Any], length: int | None, named: str, tmp_path: Path
) -> None:
    settings = SamplerConfig(name="static", **sampler)
    with pytest.raises(ConfigError, match=named) if named else nullcontext():
        known = Known.read(checkpoint(tmp_path, "sdar", **model))
        check_network_blocks(known, settings, length, "x", "n")
    check_network_blocks(Known.read(checkpoint(tmp_path, "llada")), settings, length, "x", "n")


@pytest.mark.parametrize(
    ("family", "images", "named"),
    [
        ("mmada", 2, "line 2: prompt 'rows-1' has 2 images .* exactly one image"),
        ("mmada", 0, "line 2: prompt 'rows-1' has 0 images"),
        ("llava_llada", 0, "line 2: prompt 'rows-1' has 0 images and 0 marks"),
        ("llava_llada", 2, ""),
    ],
)
def test_a_prompt_with_a_wrong_number_of_images_is_refused_with_its_place(
    family: str, images: int, named: str, tmp_path: Path
) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "one.png")
    row = {"prompt": "which?", "images": ["one.png"] * images}
    (tmp_path / "rows.jsonl").write_text(QUESTION + json.dumps(row))
    prompts = load_prompts(str(tmp_path / "rows.jsonl"), "image_to_text")
    of_any_family = Known.read(ModelConfig(path="owner/name"))
    check_prompts(of_any_family, "image_to_text", prompts)
    with pytest.raises(ConfigError, match=named) if named else nullcontext():
        check_prompts(Known.read(checkpoint(tmp_path, family)), "image_to_text", prompts)
