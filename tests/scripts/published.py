"""What recipes of public checkpoints read: the families, and a row of each set of the hub."""

from typing import Any

FAMILIES = {
    **{"GSAI-ML/LLaDA-8B": "llada", "GSAI-ML/LLaDA-V": "llava_llada", "Gen-Verse/MMaDA": "mmada"},
    **{"Dream-org/": "dream", "apple/": "dream", "JetLM/SDAR": "sdar", "Gen-Verse/TraDo": "sdar"},
    **{"Alpha-VLLM/": "lumina", "amused/": "amused"},
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


def find_family(path: str) -> str:
    """The family of a public checkpoint."""
    return next(own for start, own in FAMILIES.items() if path.startswith(start))
