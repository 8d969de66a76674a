"""Columns of prompts that rewards score by, checked before anything loads."""

from collections.abc import Sequence

from mmrl.config import ConfigError
from mmrl.rollouts.tasks import Task
from mmrl.types import Prompt

REWARD_COLUMNS = {
    "answer": ("answer",),
    "code": ("tests",),
    "compositional": ("include",),
    "countdown": ("numbers", "target"),
    "dsg": ("questions",),
    "math": ("answer",),
    "shapes": ("include",),
    "shapes_edit": ("edited", "include"),
    "sudoku": ("puzzle", "solution"),
}
"""Columns without which a reward scores no completion of a prompt."""


def check_columns(task: Task) -> None:
    """Refuse prompts of which no reward of a task can score any, as far as rewards are known.

    Raises:
        ConfigError: the message names file, reward, columns, what rows have, and what to do.
    """
    config = task.config
    for key, source, prompts, rewards in (
        ("prompts", config.prompts, task.prompts, config.rewards),
        ("eval_prompts", config.eval_prompts, task.eval_prompts, config.eval_rewards),
    ):
        names = [str(entry.get("name")) for entry in rewards or config.rewards]
        _check_rewards(f"tasks.{task.name}.{key}", source, prompts, names)


def _check_rewards(key: str, source: str, prompts: Sequence[Prompt], names: list[str]) -> None:
    known = {name: REWARD_COLUMNS[name] for name in names if name in REWARD_COLUMNS}
    have = set[str]().union(*map(_columns, prompts))
    lacking = {name: [c for c in columns if c not in have] for name, columns in known.items()}
    if not prompts or not known or not all(lacking.values()):
        return
    name, columns = next(iter(lacking.items()))
    raise ConfigError(
        f"{key}: no row of '{source}' has {', '.join(map(repr, columns))}, which the reward {name}"
        f" scores by; rows have {sorted(have)}. Name the column in data.columns, or choose another"
        " data.format."
    )


def _columns(prompt: Prompt) -> set[str]:
    answer = set[str]() if prompt.answer is None else {"answer"}
    return answer | set(prompt.metadata)
