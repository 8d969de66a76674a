"""Chains of tasks: the completions of one are the prompts of the next, and rewards flow back.

    tasks:
      enhance: {task: text, prompts: prompts.jsonl, num_prompts: 8, num_generations: 4, …}
      draw: {task: text_to_image, prompts: tasks.enhance, num_generations: 8, …}

P prompts get N completions each, and each of these M of the next task: groups nest.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mmrl.config import ConfigError, check, check_choice
from mmrl.models.task_names import TEXTS, completions_of
from mmrl.rollouts.task_config import TaskConfig

CHAINED = "tasks."
"""How `prompts` begins that are the completions of another task."""


def upstream_of(task: TaskConfig) -> str | None:
    """The task whose completions are the prompts of a task; None where they are in a file."""
    return task.prompts.removeprefix(CHAINED) if task.prompts.startswith(CHAINED) else None


def order_tasks(tasks: Mapping[str, TaskConfig]) -> list[str]:
    """The names of tasks, each after the one that it follows. Raises ConfigError: an unknown task,
    one without texts, or a circle."""
    ordered: list[str] = []
    for name in tasks:
        path = [name]
        while (above := upstream_of(tasks[path[-1]])) is not None:
            where = f"tasks.{path[-1]}.prompts"
            check_choice(where, above, tasks)
            texts = completions_of(tasks[above].task) == TEXTS
            allowed = "a task that writes texts, which are the prompts of this one"
            check(texts, where, f"{CHAINED}{above}", allowed)
            if above in path:
                circle = " <- ".join([*path, above])
                raise ConfigError(f"{where} closes a circle: {circle}; give one of them a file.")
            path.append(above)
        ordered += [each for each in reversed(path) if each not in ordered]
    return ordered


def resolve_chain(tasks: Mapping[str, TaskConfig], name: str) -> dict[str, Any]:
    """Settings of a task that it has of those before it: the file of the first, without what that
    task says around a prompt, and a prompt for each of their completions; nothing where it follows
    none."""
    above = upstream_of(tasks[name])
    if above is None:
        return {}
    settings, task = {**vars(tasks[above]), **resolve_chain(tasks, above)}, tasks[name]
    return {
        "prompts": settings["prompts"],
        "data": replace(settings["data"], template=""),
        "eval_prompts": task.eval_prompts or settings["eval_prompts"],
        "eval_limit": task.eval_limit or settings["eval_limit"],
        "eval_data": {k: v for k, v in settings["eval_data"].items() if k != "template"},
        "num_prompts": settings["num_prompts"] * settings["num_generations"],
    }


def check_chains(tasks: Mapping[str, TaskConfig]) -> None:
    """Raise a ConfigError for tasks that cannot follow each other."""
    order_tasks(tasks)
    for name, task in tasks.items():
        chained = upstream_of(task) is not None or name in map(upstream_of, tasks.values())
        number, allowed = task.max_num_gen_batches, "1 in a chain, whose groups belong together"
        check(not chained or number == 1, f"tasks.{name}.max_num_gen_batches", number, allowed)


def check_rewards(tasks: Mapping[str, TaskConfig]) -> None:
    """Raise a ConfigError for a task without rewards, of its completions or of what follows."""
    followed = {upstream_of(task) for task in tasks.values() if task.chain.reward != "none"}
    for name, task in tasks.items():
        if not task.rewards and name not in followed:
            raise ConfigError(f"tasks.{name}.rewards is empty; name one, such as {{name: clip}}.")
