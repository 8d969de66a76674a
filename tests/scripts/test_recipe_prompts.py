"""What a recipe's prompt asks for is what its rewards pay for.

A completion that follows the prompt to the letter, with the right answer, gets the full score of
every reward. It is written from the prompt alone: a reward that wants a tag or a box which the
prompt does not name finds none.
"""

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mmrl.config import load_config
from mmrl.data.prompts import load_prompts
from mmrl.models.task_names import writes_images
from mmrl.rewards import build_reward
from mmrl.rewards.countdown import solves
from mmrl.rl_config import RLConfig
from mmrl.types import Prompt, Sample
from tests.scripts import published

ROOT = Path(__file__).resolve().parents[2]
JUDGED = ("judge", "clip")
"""Rewards of a network, which has no full score."""
FULL = {"xmlcount": 0.5}
"""Full scores that are not 1, by `mode`."""
FORM = re.compile(r":\n((?:<|```).+\n?(?:.+\n?)*)")
"""The lines in which a prompt shows what an answer looks like, with their ends."""
TAUGHT = "as in supervised training:\n<answer>...</answer>"
"""What stands for the short prompts of `datasets/text`: its checkpoints know the form without."""

pytestmark = pytest.mark.usefixtures("in_the_checkout")


def read_tasks() -> list[Any]:
    """The configured tasks of all recipes that write text, one of those that pay alike."""
    tasks = {}
    for path in sorted((ROOT / "configs" / "rl").glob("*.yaml")):
        for name, task in load_config(RLConfig, [f"config={path}"]).tasks.items():
            if task.rewards and not writes_images(task.task):
                same = repr((task.prompts, task.data, task.rewards, task.eval_rewards))
                tasks.setdefault(same, pytest.param(task, id=f"{path.stem}-{name}"))
    return list(tasks.values())


def read_prompt(task: Any, folder: Path) -> Prompt:
    """The first prompt of a task; of a data set of the hub a row with its columns."""
    source, data = task.prompts, task.data
    if source in published.RL_ROWS:
        # a file has neither configurations nor splits
        source = str(published.write_rows(source, folder))
        data = replace(data, config=None, split=None)
    return load_prompts(source, task.task, data, limit=1)[0]


def solve(prompt: Prompt) -> str:
    """The right answer, in no form."""
    values = prompt.metadata
    if "tests" in values:
        reads = isinstance(values["tests"][0], dict)
        return "print(input())" if reads else "def f(x):\n    return x + 1"
    if "numbers" in values:
        numbers, target = values["numbers"], values["target"]
        signs = itertools.product("+-*/", repeat=len(numbers) - 1)
        tries = itertools.product(itertools.permutations(numbers), signs)
        texts = (
            "".join(map(str, itertools.chain(*zip(n, (*s, ""), strict=True)))) for n, s in tries
        )
        return next(text for text in texts if solves(text, numbers, target))
    return values["solution"] if "solution" in values else str(prompt.answer)


def follow(asked: str, answer: str) -> str:
    """The completion that does what a prompt asks for, and nothing else."""
    if form := FORM.search(asked):
        *before, last = form[1].split("...")
        thought = "First this.\nThen that."
        return f"{thought.join(before)}{answer}{last}"
    return f"So it is \\boxed{{{answer}}}." if "\\boxed{}" in asked else answer


def find_unpaid(task: Any, prompt: Prompt, completion: str) -> dict[str, float | None]:
    """The rewards of a task that do not give a completion their full score, and what they give."""
    metadata = {**prompt.metadata, "answer": prompt.answer}
    sample = Sample(prompt.text, completion, {k: v for k, v in metadata.items() if v is not None})
    scores = {}
    for entry in (*task.rewards, *task.eval_rewards):
        if entry["name"] not in JUDGED:
            reward: Any = build_reward(entry)
            [score] = reward([sample])
            if score != FULL.get(entry.get("mode"), 1.0):
                scores[entry.get("key", entry["name"])] = score
    return scores


@pytest.mark.parametrize("task", read_tasks())
def test_what_follows_the_prompt_gets_every_reward_in_full(task: Any, tmp_path: Path) -> None:
    prompt = read_prompt(task, tmp_path)
    taught = task.prompts.startswith("datasets/text/") and not task.data.template
    completion = follow(TAUGHT if taught else prompt.text, solve(prompt))
    assert find_unpaid(task, prompt, completion) == {}, f"{prompt.text}\n---\n{completion}"


@pytest.mark.parametrize(
    ("recipe", "says", "unpaid"),
    [
        ("llada_math", "{prompt}", {"correct", "layout"}),
        ("llada_math", "Answer in a box, \\boxed{{}}.\n{prompt}", {"layout"}),
        ("llada_gsm8k", "In this form:\n<answer>\n...\n</answer>\n\n{prompt}", {"soft_format"}),
        ("llada_trace_rl", "{prompt}", {"math"}),
        ("llada_sudoku", "Solve it: {puzzle}", {"sudoku"}),
    ],
)
def test_a_prompt_that_does_not_ask_for_what_is_paid_is_noticed(
    recipe: str, says: str, unpaid: set[str], tmp_path: Path
) -> None:
    config = load_config(RLConfig, [f"config=configs/rl/{recipe}.yaml"])
    [task] = config.tasks.values()
    task.data.template = says
    prompt = read_prompt(task, tmp_path)
    assert unpaid <= find_unpaid(task, prompt, follow(prompt.text, solve(prompt))).keys()


@pytest.mark.parametrize("recipe", ["lladav_process", "mmada_v_process"])
def test_a_caption_is_asked_for_and_paid_by_its_picture(recipe: str, tmp_path: Path) -> None:
    task = load_config(RLConfig, [f"config=configs/rl/{recipe}.yaml"]).tasks["captions"]
    prompt = read_prompt(task, tmp_path)
    assert prompt.text.startswith("Describe the picture") and "blue" not in prompt.text
    [entry] = task.rewards
    reward: Any = build_reward({**entry, "model": "datasets/shapes/checkpoints/clip"})
    words = ["a red square", "a blue circle", "two green stars"]
    samples = [Sample(prompt.text, text, prompt.metadata, prompt.images) for text in words]
    right, *wrong = (score if score is not None else -1.0 for score in reward(samples))
    assert right > max(wrong)
