"""Every supervised recipe of a public checkpoint runs two steps on a skeleton of it."""

import json
import tarfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from mmrl.config import load_config
from mmrl.planning.sft_plan import describe
from mmrl.sft import SFTConfig, train
from tests.mmrl.runs import metrics
from tests.pictures import add_file, png

RECIPES = {"d1_s1k": "llada", "dllm_rl_llada_random": "llada", "dllm_rl_llada_semi_ar": "llada"}
RECIPES |= {"dllm_rl_llada_trace": "llada", "dllm_rl_llada_ar": "llada"}
RECIPES |= {"dllm_rl_dream_random": "dream", "dllm_rl_dream_semi_ar": "dream"}
RECIPES |= {"dllm_rl_dream_ar": "dream", "dllm_rl_sdar_block": "sdar", "dllm_rl_sdar_trace": "sdar"}
RECIPES |= {"dllm_rl_mmada_long_cot": "mmada", "dllm_rl_mmada_v": "mmada"}
RECIPES |= {"dllm_rl_lladav": "llava_llada", "maskgrpo_images": "mmada", "llada_8b": "llada"}
RECIPES |= {"qwen3_gsm8k": "qwen3", "qwen_vl_geo3k": "qwen2_5_vl"}
"""Recipe -> the family of its checkpoint."""
ADAPTERS = ("d1_s1k", "qwen_vl_geo3k")
SMALL = ["max_steps=2", "bf16=false", "num_train_epochs=null", "gradient_accumulation_steps=2"]
SMALL += ["logging_steps=1", "save_steps=0", "eval_steps=0"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Rows in the schemas of the recipes' data sets."""
    folder, draw = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    images = []
    for n in range(4):
        pixels = draw.integers(0, 256, (64, 48, 3), np.uint8)
        images.append(png(Image.fromarray(pixels), "JPEG"))
        (folder / f"{n}.jpg").write_bytes(images[-1])
    turns = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    prompt = "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>"
    prompt += "<|start_header_id|>assistant<|end_header_id|>\n\n"
    sums = [(f"What is {n} + {n}?", f"{n} + {n} = {2 * n}") for n in range(4)]
    files = {
        "gsm8k": [{"question": q, "answer": a} for q, a in sums],
        "geo3k": [
            {"images": [f"{n}.jpg"], "problem": f"<image>{q}", "answer": a}
            for n, (q, a) in enumerate(sums)
        ],
        "s1k": [{"question": q, "thinking_trajectories": [a], "attempt": a} for q, a in sums],
        "text": [{"prompt": prompt.format(q), "response": f"{a}<|eot_id|>"} for q, a in sums],
        "turns": [{"prompt": turns.format(q), "response": f"{a}<|im_end|>"} for q, a in sums],
        "chat": [
            {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]}
            for q, a in sums
        ],
        "rollouts": [
            {"prompt": q, "completion": a, "tokens": [*a.encode()], "trace": [*range(len(a))]}
            for q, a in sums
        ],
        "images": [
            {"image": f"{n}.jpg", "prompt": f"<image>\n{q}", "response": a}
            for n, (q, a) in enumerate(sums)
        ],
    }
    steps = [{**row, "step_map": list(range(len(a)))} for row, (_, a) in zip(files["text"], sums)]  # noqa: B905
    for name, rows in {**files, "trace": steps}.items():
        (folder / f"{name}.json").write_text(json.dumps(rows))
    with tarfile.open(folder / "pairs.tar", "w") as archive:
        for n, image in enumerate(images):
            for suffix, content in (("jpg", image), ("txt", b"a photo of a bench")):
                add_file(archive, f"{n}.{suffix}", content)
    return SimpleNamespace(folder=folder)


def words(name: str, skeletons: dict[str, Path], data: SimpleNamespace, output: Path) -> list[str]:
    """The recipe with local checkpoints and rows, and small batches of short rows."""
    model, folder = skeletons[RECIPES[name]], data.folder
    rows = {"d1_s1k": "s1k", "llada_8b": "chat", "dllm_rl_llada_trace": "trace"}.get(name, "text")
    rows = {"qwen3_gsm8k": "gsm8k", "qwen_vl_geo3k": "geo3k"}.get(name, rows)
    rows = "turns" if RECIPES[name] in ("dream", "sdar") else rows
    rows = "rollouts" if name == "dllm_rl_sdar_trace" else rows
    rows = "images" if name.endswith(("mmada_v", "lladav")) else rows
    words = [f"config=configs/sft/{name}.yaml", f"output_dir={output}", *SMALL]
    words += [f"objective.model={model}", "per_device_train_batch_size=1"]
    if name == "maskgrpo_images":
        words += [f"objective.vq={skeletons['magvitv2']}", f"objective.data={folder / 'pairs.tar'}"]
        return words
    words += [f"objective.data={folder / rows}.json", "objective.data_split=null"]
    words += ["objective.data_config=null"] if rows == "gsm8k" else []
    if name == "d1_s1k":
        words += [f"objective.eval_data={folder / rows}.json", "objective.eval_split=null"]
    if name.startswith(("dllm_rl_llada_", "dllm_rl_dream_")) and name != "dllm_rl_dream_ar":
        words += ["objective.completion_length=64"]
    if rows in ("images", "geo3k"):
        words += [f"objective.image_root={folder}"]
    if name == "dllm_rl_mmada_v":
        return [*words, f"objective.vq={skeletons['magvitv2']}"]
    return words if name == "dllm_rl_lladav" else [*words, "objective.max_length=512"]


@pytest.mark.usefixtures("in_the_checkout")
@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_runs_two_steps_on_a_skeleton(
    name: str, skeletons: dict[str, Path], data: SimpleNamespace, tmp_path: Path
) -> None:
    config = load_config(SFTConfig, words(name, skeletons, data, tmp_path / "run"))
    assert "memory" in str(describe(config))
    run = train(config)
    assert [line["step"] for line in metrics(run) if "loss" in line] == [1, 2]
    assert all(0 < line["loss"] < 1000 for line in metrics(run) if "loss" in line)
    kind = "adapter_model" if name in ADAPTERS else "model"
    weights = load_file(run / "final" / f"{kind}.safetensors")
    assert all(bool(torch.isfinite(value).all()) for value in weights.values())
