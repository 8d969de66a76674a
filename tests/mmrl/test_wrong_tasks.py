"""A family asked for a task that it lacks: every command refuses, before weights are read."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mmrl import eval as text
from mmrl import eval_v as vision
from mmrl import rl
from mmrl.evaluation.eval_config import TEXT_TASKS, VISION_TASKS
from mmrl.models import weights
from mmrl.models.families import FAMILIES
from mmrl.models.image_tokenizers import image_tokenizer
from mmrl.models.task_names import TASKS
from tests.models.small_policies import POLICIES, small_policy

LACKING = {
    family: [task for task in TASKS if task not in FAMILIES[family].LAYOUTS]
    for family in sorted(POLICIES)
}
PAIRS = [
    (family, task)
    for n, (family, tasks) in enumerate(LACKING.items())
    for task in sorted({tasks[n % len(tasks)], *({"text"} & set(tasks))})
]
"""Of each family a task that it lacks, text always; of each task some families."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of every family, by its name."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for family in POLICIES:
        with suppress(pytest.skip.Exception):  # of a package that is not installed
            small_policy(family).save(folder / family)
    return folder


@pytest.fixture(autouse=True)
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("weights were read")

    monkeypatch.setattr(weights, "read_rows", refuse)
    monkeypatch.setattr(image_tokenizer, "read_weights", refuse)


def refusal(
    main: Callable[[list[str]], int], words: list[str], capsys: pytest.CaptureFixture
) -> str:
    """What a command says that it refuses, without and with `dry_run`."""
    said = []
    for dry in ([], ["dry_run=true"]):
        assert main([*words, *dry]) == 1
        lines = capsys.readouterr().err.splitlines()
        said.append(next(line for line in lines if line.startswith("error: ")))
    assert said[0] == said[1]
    return said[0]


@pytest.mark.parametrize(("family", "task"), PAIRS)
def test_rl_and_the_evaluations_name_the_families_that_have_the_task(
    family: str, task: str, folder: Path, capsys: pytest.CaptureFixture
) -> None:
    path = folder / family
    if not path.exists():
        pytest.skip(f"{family} needs a package that is not installed")
    words = [f"output_dir={folder / 'run'}", f"model.path={path}"]
    able = " or ".join(sorted(n for n, own in FAMILIES.items() if task in own.LAYOUTS))
    wanted = (
        f"error: model.path is '{path}'; it must be a checkpoint of type {able} for the task {task}"
    )
    ran = [*words, f"tasks.a.task={task}", "tasks.a.prompts=rows", "tasks.a.rewards=[{name: jpeg}]"]
    assert refusal(rl.main, ran, capsys).startswith(f"{wanted} of tasks.a. Its config.json says ")
    if task not in (*TEXT_TASKS, *VISION_TASKS):
        return  # of which there is no benchmark
    command = text if task in TEXT_TASKS else vision
    ran = [*words, f"task={task}", "prompts=rows", "rewards=[{name: jpeg}]"]
    assert refusal(command.main, ran, capsys).startswith(f"{wanted}. Its config.json says ")
    assert not (folder / "run").exists() or not any((folder / "run").glob("final*"))
