"""Every evaluation of a public checkpoint runs on a skeleton of that checkpoint.

The vocabulary, the layouts, the columns of the data, the rewards and the sandbox are the
evaluation's; lengths and steps are few, and the rows of hub data sets are written here.
"""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mmrl import eval as text
from mmrl import eval_v as vision
from mmrl.evaluation.eval_config import EvalConfig, load_settings
from mmrl.rewards.detection import instance_segmenter as segmenter
from tests.mmrl.data.test_asked_prompts import HEAD
from tests.mmrl.data.test_livecodebench import METHOD
from tests.mmrl.question_sets import SETS, on_the_hub
from tests.rewards.judge_server import judge_server
from tests.scripts import published

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted(
    path
    for path in (ROOT / "configs" / "eval").glob("*.yaml")
    if re.match("(llada|mmada|dream|trado|lumina|amused|sd3|qwen3|qwen_vl)v?_", path.name)
)
ROWS = {
    **published.ROWS,
    "Gen-Verse/AIME2024": {"question": "What is 1 + 2?", "ground_truth_answer": "003"},
    "openai/openai_humaneval": {
        "task_id": "HumanEval/0",
        "prompt": 'def f(x):\n    """Add one."""\n',
        "canonical_solution": "    return x + 1\n",
        "test": "def check(candidate):\n    assert candidate(1) == 2\n",
        "entry_point": "f",
    },
    "Gen-Verse/LiveCodeBench": published.STDIO,
    "Gen-Verse/LiveBench": published.STDIO,
    "code_generation_lite/test6.jsonl": METHOD,
    "math-ai/aime25": {"id": "0", "problem": "What is 1 + 2?", "answer": "3"},
    "HuggingFaceH4/MATH-500": published.ROWS["ankner/math-500"],
    "HuggingFaceH4/aime_2024": {"problem": "1 + 2?", "answer": "003"},
    "nateraw/parti-prompts": {"Prompt": "a fox", "Category": "Animals", "Challenge": "Basic"},
    "geneval2_data.jsonl": {"prompt": "two red circles", "atom_count": 3}
    | {"vqa_list": [["How many circles are there?", "two"], ["Are they red?", "Yes"]]}
    | {"skills": ["count", "attribute"]},
    "Gen-Verse/MATH500": {"question": "What is 1 + 2?", "ground_truth_answer": "3"},
}
QUESTIONS = {"lmms-lab/SEED-Bench": "seed_bench", "lmms-lab/MMMU": "mmmu"}
QUESTIONS |= {"AI4Math/MathVista": "mathvista"}
"""The sets of questions about images."""
GENEVAL = [
    {"tag": "counting", "include": [{"class": "dog", "count": 2}], "prompt": "two dogs"},
    {"tag": "colors", "include": [{"class": "cow", "count": 1, "color": "red"}], "prompt": "cow"},
]
HPS = {
    "HPDv2/benchmark/*.json": {
        "anime.json": ["a fox"],
        "photo.json": ["a boat", "an owl"],
        "drawbench.json": ["left out"],
    },
    "HPDv3/benchmark/*.json": {"benchmark_Arts.json": [{"caption": "a vase"}]},
}
"""The files of the prompts of HPSv2 and HPSv3."""
SCORERS = ("hps", "hpsv3", "pickscore", "imagereward", "aesthetic", "clip")
DPG = "a,a red circle,,1,0,entity,whole,t,is it red?\n"
CLIP = str(ROOT / "datasets" / "shapes" / "checkpoints" / "clip")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_the_checkout")]


def read_recipe(path: Path) -> tuple[Callable[[list[str]], int], EvalConfig]:
    """The command of an evaluation, and its settings."""
    images = re.search("v_|_vl_|geneval|dpg|hps|parti", path.stem)
    command = vision if images else text
    tasks = ("text_to_image", "image_to_text") if images else ("text",)
    return command.main, load_settings([f"config={path}"], tasks)


def write_prompts(config: EvalConfig, folder: Path) -> list[str]:
    """Rows of the data set, and the words that read them."""
    if config.prompts in QUESTIONS:
        rows, types, _ = SETS[QUESTIONS[config.prompts]]
        return [f"prompts={on_the_hub(folder, rows, types, config.data.split or 'train')}"]
    if config.data.format == "dpg_bench":
        (folder / "dpg_bench.csv").write_text(HEAD + DPG)
        return [f"prompts={folder / 'dpg_bench.csv'}"]
    if config.data.format == "hps":
        for name, rows in HPS[config.prompts].items():
            (folder / name).write_text(json.dumps(rows))
        return [f"prompts={folder}/*.json"]
    if config.prompts.startswith("datasets/"):
        return ["limit=2"]
    rows = GENEVAL if config.geneval_dir else [ROWS[config.prompts]]
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps({"task_id": 1, **row}) + "\n" for row in rows))
    return [f"prompts={path}", "data.config=null", "data.split=null"]


def shrink(config: EvalConfig) -> list[str]:
    """The words for few positions and steps."""
    if config.task == "text_to_image":
        return ["sampler.steps=2", "num_images_per_prompt=2"]
    block, steps = getattr(config.sampler, "block_size", None), hasattr(config.sampler, "steps")
    length = 2 * block if block else min(32, config.max_completion_length or 32)
    few = {"max_completion_length": length} | ({"steps": min(4, length)} if steps else {})
    if config.settings:
        rows = {json.dumps({**entry, **few}) for entry in config.settings}
        return [f"settings=[{', '.join(sorted(rows))}]"]
    words = [f"sampler.steps={few['steps']}"] if steps else []
    return [f"max_completion_length={length}", *words, f"num_samples={min(2, config.num_samples)}"]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_an_evaluation_runs_on_a_skeleton(
    path: Path,
    tmp_path: Path,
    skeletons: dict[str, Path],
    reward_networks: dict[str, dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segmenter, "EDGES", {"shortest_edge": 64, "longest_edge": 96})
    main, config = read_recipe(path)
    family = published.find_family(config.model.path)
    if family in ("lumina", "amused"):
        pytest.importorskip("diffusers")
    words = [f"config={path}", f"output_dir={tmp_path / 'out'}"]
    words += [f"model.path={skeletons[family]}", "model.dtype=float32"]
    words += ["model.max_prompt_length=2048", *write_prompts(config, tmp_path), *shrink(config)]
    if config.model.vq and family not in ("lumina", "amused", "sd3"):  # hold their own
        words += [f"model.vq={skeletons['magvitv2']}"]
    words += ["model.image_size=64"] if config.model.image_size else []
    words += [f"geneval_dir={tmp_path / 'folders'}"] if config.geneval_dir else []
    entries = [dict(entry) for entry in config.rewards]
    with judge_server() as url:
        for entry in entries:
            if entry["name"] == "compositional":
                entry |= {**reward_networks["compositional"], "clip_model": CLIP}
            if entry["name"] in SCORERS:  # up to 17 GB: images are scored by their size
                entry |= {"name": "jpeg", "key": entry["name"]}
                entry.pop("version", None)
            if entry["name"] == "dsg":
                entry |= {"model": "colours", "urls": [url], "cache_dir": str(tmp_path / "cache")}
        assert main([*words, f"rewards={json.dumps(entries)}"]) == 0
    scores = json.loads((tmp_path / "out" / "scores.json").read_text())
    key = entries[0].get("key") or entries[0]["name"]
    if config.data.format == "hps":
        tags = {f.removesuffix(".json").removeprefix("benchmark_") for f in HPS[config.prompts]}
        assert tags - {"drawbench"} <= scores["tables"][key].keys() and "drawbench" not in str(
            scores
        )
    if config.task == "text_to_image":
        found = [sample[key] for sample in scores["samples"]]
    else:
        assert scores["left_out"] == 0
        found = [s["scores"][key] for own in scores["samples"].values() for s in own]
    assert found and all(score is not None and math.isfinite(score) for score in found)
    if config.geneval_dir:
        assert (tmp_path / "folders" / "00001" / "samples" / "00001.png").is_file()
