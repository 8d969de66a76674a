"""Test prompts stay unread: a run that has seen one, in whatever role, is refused."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mmrl.config import ConfigError, load_config, merge
from mmrl.data.data_config import DataConfig
from mmrl.rl_config import RLConfig
from mmrl.rollouts.task_config import TaskConfig


def check_unread(config: RLConfig, task: str, test: str, where: str) -> None:
    """Check that a run trains on, and evaluates, none of the test prompts.

    Args:
        config: settings of the run.
        task: of the run.
        test: the prompts that are read once, at the end.
        where: names the run in messages.

    Raises:
        ConfigError: `prompts` or `eval_prompts` is the test file, or shares prompts with it.
    """
    options = config.tasks[task]
    hidden = prompt_digests(test, options, held_out=True)
    for key, held_out in (("prompts", False), ("eval_prompts", True)):
        source = getattr(options, key)
        if not source:
            continue
        seen = _same_file(source, test)
        shared = len(hidden) if seen else len(hidden & prompt_digests(source, options, held_out))
        if shared:
            raise ConfigError(
                f"{where}: tasks.{task}.{key} is '{source}', which has {shared} of the"
                f" {len(hidden)} prompts of the table's test, '{test}'. What was trained or chosen"
                " on them cannot be reported: use validation prompts, in a new run directory."
            )


def check_directory(folder: Path, task: str, test: str) -> None:
    """Check what the run in a directory has really read, as its `config.yaml` says.

    Raises:
        ConfigError: see `check_unread`.
    """
    path = folder / "config.yaml"
    if path.is_file():
        check_unread(load_config(RLConfig, [f"config={path}"]), task, test, f"the run '{folder}'")


def prompt_digests(source: str, options: TaskConfig, held_out: bool) -> frozenset[str]:
    """What distinguishes each prompt of a file from others: its text, messages and images.

    Args:
        source: prompt file or hub id.
        options: of the task, with how rows are read.
        held_out: whether they are read like `eval_prompts`.
    """
    data = asdict(options.data)
    changes = options.eval_data if held_out else {}
    return _digests(source, options.task, json.dumps([data, changes], default=str))


@functools.cache
def _digests(source: str, task: str, data: str) -> frozenset[str]:
    from mmrl.data.prompts import load_prompts

    how: list[Any] = json.loads(data)
    prompts = load_prompts(source, task, merge(DataConfig, *how))
    return frozenset(_digest(prompt) for prompt in prompts)


def _digest(prompt: Any) -> str:
    from mmrl.data.lazy_images import LazyImages

    images = prompt.images if isinstance(prompt.images, LazyImages) else LazyImages(())
    about = [prompt.text, prompt.messages, [each.digest.hex() for each in images.sources]]
    return hashlib.sha256(json.dumps(about, default=str).encode()).hexdigest()


def _same_file(one: str, other: str) -> bool:
    paths = Path(one).expanduser(), Path(other).expanduser()  # ids of the hub have splits
    return all(path.exists() for path in paths) and paths[0].samefile(paths[1])
