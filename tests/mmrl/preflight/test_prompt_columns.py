"""Columns that rewards need are checked before anything loads."""

import json
from pathlib import Path
from typing import Any

import pytest

from mmrl.config import ConfigError
from mmrl.data.data_config import DataConfig
from mmrl.preflight.prompt_columns import REWARD_COLUMNS, check_columns
from mmrl.rewards import REWARDS
from mmrl.rollouts.task_config import TaskConfig
from mmrl.rollouts.tasks import Task

MATH = {"question": "1+1?", "ground_truth_answer": "2"}
FUNCTION = {"question": "add", "test_method": "function", "test_list": ["assert f(1) == 1"]}


def task_of(folder: Path, row: dict[str, Any], reward: str, **data: Any) -> Task:
    """A task over one row."""
    path = folder / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    settings: dict[str, Any] = {"task": "text", "prompts": str(path), "rewards": [{"name": reward}]}
    return Task("sums", TaskConfig(**settings, data=DataConfig(**data)))


@pytest.mark.parametrize(
    ("row", "reward", "column", "format_"),
    [
        (MATH, "math", "answer", "dllm_rl"),
        (FUNCTION, "code", "tests", "dllm_rl"),
        ({"question": "x", "nums": [1, 2], "target": 3}, "countdown", "numbers", "countdown"),
        ({"prompt": "x", "Puzzle": "12", "Solution": "12"}, "sudoku", "puzzle", "d1_sudoku"),
    ],
)
def test_a_column_that_no_row_has_is_named(
    row: dict[str, Any], reward: str, column: str, format_: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as error:
        check_columns(task_of(tmp_path, row, reward))
    said = str(error.value)
    assert f"no row of '{tmp_path}/rows.jsonl' has '{column}'" in said
    assert f"which the reward {reward} scores by" in said
    assert "or choose another data.format" in said
    check_columns(task_of(tmp_path, row, reward, format=format_))


def test_another_name_of_the_column_is_accepted(tmp_path: Path) -> None:
    check_columns(task_of(tmp_path, MATH, "math", columns={"answer": "ground_truth_answer"}))


def test_prompts_that_another_reward_scores_are_accepted(tmp_path: Path) -> None:
    task = task_of(tmp_path, {**MATH, "answer": "2"}, "math")
    task.config.rewards.append({"name": "code"})
    check_columns(task)


def test_the_rewards_with_columns_are_those_that_there_are() -> None:
    assert set(REWARD_COLUMNS) <= set(REWARDS)
