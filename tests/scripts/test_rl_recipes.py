"""Recipes for public checkpoints run two steps on skeletons of these, each but those that name
another start of the same sizes, or only what another one shows: all weights, a client of a server.

The vocabulary, the layouts, the columns of the data and the algorithm are the recipe's; sizes are
smaller, the rows of hub data sets are written here, and networks of rewards are small ones with
random weights; `jpeg` stands for the one that has none.
"""

import io
import json
import math
import pickle
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mmrl.config import load_config
from mmrl.models.task_names import VIDEOS, completions_of, writes_images
from mmrl.rewards.detection import instance_segmenter
from mmrl.rl import train
from mmrl.rl_config import RLConfig
from mmrl.rollouts.task_config import TaskConfig
from scripts.pipeline_skeletons import PIPELINES
from tests.rewards.judge_server import judge_server
from tests.rewards.scripted_server import Answered, Asked, Scripted, scripted
from tests.scripts import published
from tests.scripts.published import RL_ROWS as ROWS

ROOT = Path(__file__).resolve().parents[2]
STARTS = "llada_|lladav_|dream_|diffucoder_|sdar_|trado_|lumina_|mmada_|qwen3_|qwen_vl_"
STARTS += "|pe_|amused_|sana_|sd3_|flux_|flux2_|qwen_image_|z_image_|wan_"
ALIKE = "mmada_base_|(?!llada_trace_rl_value|amused).*_full$|.*(hpsv3|unified_reward)_client$"
ALIKE += "|sd3_guard_(ocr|pickscore)"
RECIPES = sorted(
    path
    for path in (ROOT / "configs" / "rl").glob("*.yaml")
    if re.match(STARTS, path.name) and not re.match(ALIKE, path.stem)
)
CLIP = {"name": "clip", "model": str(ROOT / "datasets" / "shapes" / "checkpoints" / "clip")}
NOT_HERE = ("hpsv3",)
"""Rewards whose networks cannot be had without a download, and have no small one here."""
Networks = dict[str, dict[str, Any]]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def judge() -> Iterator[str]:
    with judge_server() as url:
        yield url


@pytest.fixture(scope="module")
def rewards() -> Iterator[Scripted]:
    """A reward-server: pickles in, pickles out, brighter images score higher."""

    def answer(asked: Asked) -> Answered:
        if asked.method == "GET":
            return Answered(status=405)
        images = [Image.open(io.BytesIO(data)) for data in pickle.loads(asked.body)["images"]]
        scores = [sum(image.convert("L").resize((1, 1)).tobytes()) / 255 for image in images]
        return Answered(pickle.dumps({"scores": scores}))

    with scripted(answer) as server:
        yield server


def replace_reward(
    entry: dict[str, Any], judge: str, rewards: str, networks: Networks
) -> dict[str, Any]:
    """The reward of a recipe, as it can be had here."""
    if entry.get("mode") == "client":
        return {**entry, "url": rewards}
    if entry["name"] == "judge":
        own = {key: value for key, value in entry.items() if key != "backend"}
        return {**own, "urls": [judge], "model": "right", "template": None}
    if entry["name"] in ("clip", "pickscore"):  # a CLIP too
        return {**CLIP, **{key: entry[key] for key in ("image", "frames", "key") if key in entry}}
    if entry["name"] in NOT_HERE:
        return {"name": "jpeg"}
    return {**entry, **networks.get(entry["name"], {})}


def shrink_task(
    task: TaskConfig, folder: Path, judge: str, rewards: str, networks: Networks
) -> dict[str, Any]:
    """The settings that make a task of a recipe small."""
    frames = {"frames": "last"} if completions_of(task.task) == VIDEOS else {}
    own: dict[str, Any] = {
        "algorithm.num_iterations": min(2, task.algorithm["num_iterations"]),
        "num_prompts": 1,
        "num_generations": 2,
        "eval_limit": 1,
        "rewards": json.dumps(
            [replace_reward(each, judge, rewards, networks) for each in task.rewards]
        ),
        "eval_rewards": json.dumps(
            [{"name": "jpeg", **frames}] if writes_images(task.task) else []
        ),
    }
    if writes_images(task.task):
        own["sampler.steps"] = 6 if getattr(task.sampler, "window_size", None) else 4
    if task.max_completion_length is not None:
        own["max_completion_length"] = max(8, getattr(task.sampler, "block_size", 0) or 32)
    if task.max_completion_length is not None and hasattr(task.sampler, "steps"):
        own["sampler.steps"] = 8
    if hasattr(task.eval_sampler, "steps"):
        own["eval_sampler.steps"] = own.get("sampler.steps", 8)
    if task.soft_punish_cache is not None:
        own |= {"soft_punish_cache": 2, "max_num_gen_batches": 2}
    for key in ("prompts", "eval_prompts"):
        source = getattr(task, key)
        if not source or source.startswith("tasks."):
            continue
        if source in ROWS:
            own[key] = published.write_rows(source, folder)
        elif source.startswith(("datasets/geneval", "datasets/ocr")):
            own[key] = shorten(ROOT / source, folder / f"{key}{Path(source).suffix}")
    return own


def shorten(source: Path, path: Path, number: int = 8) -> Path:
    """The first prompts of a file: recipes that unload text encoders encode all at the start."""
    path.write_text("".join(source.read_text().splitlines(keepends=True)[:number]))
    return path


def shrink_model(model: Any, draws: bool) -> dict[str, Any]:
    """The settings that make the model of a recipe small."""
    own: dict[str, Any] = {"dtype": "float32", "image_size": 64 if model.image_size else "null"}
    # tokens of a skeleton are bytes; prompts of images are padded to this length
    own["max_prompt_length"] = 128 if draws else 2048
    for key, small in {"image_height": 32, "image_width": 48, "num_frames": 5}.items():
        own |= {key: small} if getattr(model, key) else {}
    if find_spec("bitsandbytes") is None:
        own["quantization_config"] = "null"
    if getattr(model, "per_device_train_batch_size", None):
        own["per_device_train_batch_size"] = 1
    return own


def shrink(
    config: RLConfig,
    folder: Path,
    skeletons: dict[str, Path],
    judge: str,
    rewards: str,
    networks: Networks,
) -> list[str]:
    """The words that make a recipe small, and let it read what is here."""
    models = {f"models.{name}": each for name, each in config.models.items()}
    models = models or {"model": config.model}
    draws = any(writes_images(task.task) for task in config.tasks.values())
    words = {
        "output_dir": folder / "run",
        "max_steps": 2,
        "eval_steps": 2,
        "stop_on": "null",
        "save_steps": 0,
        "bf16": "false",
        "per_device_train_batch_size": 1,
        "num_mini_batches": min(2, config.num_mini_batches),
    }
    for key, model in models.items():
        words |= {f"{key}.{name}": value for name, value in shrink_model(model, draws).items()}
        family = published.find_family(model.path)
        words[f"{key}.path"] = skeletons[family]
        words[f"{key}.encodings_dir"] = folder / "encodings" if model.encodings_dir else "null"
        if model.vq is not None and family not in ("lumina", "amused", *PIPELINES):
            words[f"{key}.vq"] = skeletons["magvitv2"]
    for name, task in config.tasks.items():
        own = shrink_task(task, folder, judge, rewards, networks)
        words |= {f"tasks.{name}.{key}": value for key, value in own.items()}
    return [f"{key}={value}" for key, value in words.items()]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_runs_two_steps_on_a_skeleton(
    path: Path,
    tmp_path: Path,
    skeletons: dict[str, Path],
    judge: str,
    rewards: Scripted,
    reward_networks: Networks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(instance_segmenter, "EDGES", {"shortest_edge": 64, "longest_edge": 96})
    words = [f"config={path}"]
    config = load_config(RLConfig, words)
    words += shrink(config, tmp_path, skeletons, judge, rewards.url, reward_networks)
    for name, task in config.tasks.items():
        if task.prompts in ROWS:  # a file has neither configurations nor splits
            words += [f"tasks.{name}.data.{key}=null" for key in ("config", "split")]
            words += [f"~tasks.{name}.eval_data"] if "format" not in task.eval_data else []
    run = train(load_config(RLConfig, words))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "learning_rate" in line]
    losses = [v for line in steps for k, v in line.items() if k.rpartition("/")[2] == "loss"]
    assert len(steps) == 2 and losses and all(map(math.isfinite, losses))
    if "captions" in config.tasks:  # the picture of the prompt with the words that were written
        assert all(-1 <= line["captions/rewards/clip/mean"] <= 1 for line in steps)
    assert list((run / "final").rglob("*.safetensors"))


def test_the_reward_of_written_words_reads_images_with_its_network(
    tmp_path: Path, skeletons: dict[str, Path], reward_networks: Networks
) -> None:
    sign = tmp_path / "signs.jsonl"
    sign.write_text(json.dumps({"prompt": 'a sign that says "Open"'}))
    path = ROOT / "configs" / "rl" / "mmada_t2i_clip.yaml"
    words = [f"config={path}"]
    words += shrink(load_config(RLConfig, words), tmp_path, skeletons, "", "", reward_networks)
    rewards = json.dumps([{"name": "ocr", **reward_networks["ocr"]}])
    words += [f"tasks.images.{key}={sign}" for key in ("prompts", "eval_prompts")]
    run = train(load_config(RLConfig, [*words, f"tasks.images.rewards={rewards}"]))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    scores = [line["rewards/ocr/mean"] for line in lines if "loss" in line]
    assert len(scores) == 2 and all(0 <= score <= 1 for score in scores)
