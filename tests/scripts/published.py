"""What recipes of public checkpoints read: the families, and a row of each set of the hub."""

import json
from pathlib import Path
from typing import Any

FAMILIES = {
    **{"GSAI-ML/LLaDA-8B": "llada", "GSAI-ML/LLaDA-V": "llava_llada", "Gen-Verse/MMaDA": "mmada"},
    **{"Dream-org/": "dream", "apple/": "dream", "JetLM/SDAR": "sdar", "Gen-Verse/TraDo": "sdar"},
    **{
        "Alpha-VLLM/": "lumina",
        "amused/": "amused",
        "stabilityai/": "sd3",
        "Efficient-Large-Model/": "sana",
        "Qwen/Qwen3-VL": "qwen3_vl",
    },
    "black-forest-labs/FLUX.1-Kontext": "flux_kontext",
    **{"black-forest-labs/FLUX.1": "flux", "black-forest-labs/FLUX.2-klein": "flux2_klein"},
    "Qwen/Qwen-Image-Edit": "qwen_image_edit",
    **{"Qwen/Qwen-Image": "qwen_image", "Tongyi-MAI/": "z_image", "Wan-AI/": "wan"},
    **{"Qwen/Qwen2.5-VL": "qwen2_5_vl", "Qwen/Qwen3-": "qwen3"},
}
"""Beginnings of hub ids, and the family of such a checkpoint."""
ADD_ONE = {"code": "def f(x):\n    return x + 1", "test_list": ["assert f(1) == 2"]}
PRINT_IT = {"test_method": "stdio", "test_input": ["1\n"], "test_output": ["1\n"]}
STDIO = {"question": "Read a number and print it.", **PRINT_IT, "test_time_limit": 5}
ROWS: dict[str, dict[str, Any]] = {
    "openai/gsm8k": {"question": "One and two?", "answer": "Added.\n#### 3"},
    "ankner/math-500": {"problem": "1 + 2?", "solution": r"It is $\boxed{3}$.", "answer": "3"},
    "google-research-datasets/mbpp": {"text": "Add one.", "test_setup_code": "", **ADD_ONE},
}
"""A row of each set of texts, with the columns it has on the hub."""
RED = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAQAAAAECAIAAAAmkwkpAAAAFElEQVR4nG"
    "M8oaHBAANMDEgANwcAOFQBICTvemsAAAAASUVORK5CYII="
)
RL_ROWS: dict[str, dict[str, Any]] = {
    **ROWS,
    "Gen-Verse/MATH_train": {"question": "What is 1 + 2?", "ground_truth_answer": "3"},
    "Jiayi-Pan/Countdown-Tasks-3to4": {"nums": [3, 4, 5], "target": 12},
    "TIGER-Lab/AceCode-87K": {
        "source": "oss",
        "question": "Write f that adds one.",
        "test_cases": ["assert f(1) == 2", "assert f(2) == 3"],
    },
    "Gen-Verse/PrimeIntellect": STDIO,
    "osunlp/MagicBrush": {
        "img_id": "1",
        "turn_index": 1,
        "source_img": RED,
        "mask_img": RED,
        "instruction": "make it blue",
        "target_img": RED,
    },
    "open-r1/DAPO-Math-17k-Processed": {"prompt": "What is 1 + 2?", "solution": "3"},
    "HuggingFaceH4/aime_2024": {"problem": "1 + 2?", "solution": "It is 3.", "answer": "003"},
    "leonardPKU/clevr_cogen_a_train": {
        "image": RED,
        "problem": "How many items are there in the image?",
        "solution": "<answer> 1 </answer>",
    },
    "hiyouga/geometry3k": {"images": [RED], "problem": "<image>Find x.", "answer": "3"},
}
"""The same of what recipes of RL train on."""


def write_rows(hub_id: str, folder: Path) -> Path:
    """A file with three rows of a set that recipes of RL train on."""
    path = folder / f"{hub_id.replace('/', '_')}.jsonl"
    row = RL_ROWS[hub_id]
    key = "task_id" if "test_list" in row else "id"
    path.write_text("".join(json.dumps({key: n, **row}) + "\n" for n in range(3)))
    return path


def find_family(path: str) -> str:
    """The family of a public checkpoint."""
    return next(own for start, own in FAMILIES.items() if path.startswith(start))
