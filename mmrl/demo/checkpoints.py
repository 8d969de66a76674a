"""What the page offers: run directories, and the checkpoints of the settings and of these.

A directory may come from anywhere: what is damaged is left out, nothing in it is executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from mmrl.config import check, merge
from mmrl.demo.demo_config import DemoConfig
from mmrl.pretrained.model_config import ModelConfig, PolicyConfig, policy_options
from mmrl.run.checkpoint import model_folders

if TYPE_CHECKING:
    from mmrl.models import Policy

UNREADABLE = (YAMLError, OmegaConfBaseException, OSError, ValueError, AttributeError, TypeError)
"""Errors of settings that are damaged."""
NAMES = ("config.json", "adapter_config.json", "model_index.json")
"""What a checkpoint has one of; the last is a pipeline's."""


def find_runs(places: Sequence[str | Path], depth: int = 5) -> dict[str, Path]:
    """Run directories by their path as a text: the places themselves, or what is below them, down
    to `depth` folders."""
    found: dict[str, Path] = {}
    for place in map(Path, places):
        if (place / "metrics.jsonl").is_file() or (place / "config.yaml").is_file():
            found[str(place)] = place
        elif depth > 0 and place.is_dir():
            found |= find_runs(sorted(place.iterdir()), depth - 1)
    return found


def find_checkpoints(config: DemoConfig) -> dict[str, ModelConfig]:
    """Settings of every checkpoint by its path. Raises ConfigError: there is none."""
    size, length = config.image_size, config.max_prompt_length
    base = ModelConfig(vq=config.vq, image_size=size, max_prompt_length=length)
    listed = {path: replace(base, path=path, dtype=config.dtype) for path in config.checkpoints}
    for run in find_runs(config.runs).values():
        for model in _of_run(config, run):
            listed.setdefault(model.path, model)
    advice = "Name directories or hub ids."
    check(bool(listed), "checkpoints", config.checkpoints, "at least one", advice)
    return listed


def able_to(task: str, checkpoints: Mapping[str, ModelConfig]) -> list[str]:
    """Names of the checkpoints whose family has a task."""
    from mmrl.pretrained.known import Known

    return [
        name
        for name, model in checkpoints.items()
        if any(task in family.LAYOUTS for family in Known.read(model).families)
    ]


def kind_of(model: ModelConfig) -> str:
    """The kind of generation of a checkpoint."""
    from mmrl.pretrained.known import Known

    return Known.read(model).families[0].KIND


def _of_run(config: DemoConfig, run: Path) -> Iterator[ModelConfig]:
    """The checkpoints of a run, with its settings of the model: of each policy the last one first,
    and at the end the weights that it started from, where they are in a directory."""
    from mmrl.pretrained.known import Known

    try:
        settings: Any = OmegaConf.load(run / "config.yaml")
        stated = settings.get("models") or {}
        models = {name: merge(PolicyConfig, own).as_model() for name, own in stated.items()}
        models = models or {"": merge(ModelConfig, settings["model"])}
    except UNREADABLE:
        return  # a directory without readable settings still has its completions
    for name, model in models.items():
        for place in (*(str(folder / name) for folder in model_folders(run)), model.path):
            if any((Path(place) / f).is_file() for f in NAMES):
                whole = {"lora": None, "quantization_config": None, "modules_to_train": None}
                found = replace(model, path=place, dtype=config.dtype, **whole)
                with suppress(*UNREADABLE):
                    if Known.read(found).families:
                        yield found


class Checkpoints:
    """Policies by name, loaded when they are first used."""

    def __init__(self, models: Mapping[str, ModelConfig], device: str, held: int) -> None:
        self.models, self.device, self.held = models, device, held
        self._policies: dict[str, Policy] = {}  # the one used last at the end

    def load(self, name: str) -> Policy:
        """The policy of a name. Raises ConfigError: no such name. Raises FileNotFoundError,
        ValueError: see `load_policy`."""
        from mmrl.models import load_policy
        from mmrl.runtime.computation import find_device

        check(name in self.models, "checkpoint", name, "one of the list")
        policy = self._policies.pop(name, None)
        if policy is None:
            while len(self._policies) >= self.held:
                del self._policies[next(iter(self._policies))]
            options = policy_options(self.models[name])
            policy = load_policy(**options, device=find_device(self.device))
        self._policies[name] = policy
        return policy
