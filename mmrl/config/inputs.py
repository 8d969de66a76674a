"""Files that a configuration reads and that must be written, or cloned, before it can run.

The comments of a YAML name the commands that write its inputs, each on a line:

    #   python datasets/shapes/write.py out=runs/shapes_world
    #   python -m mmrl.sft config=configs/sft/shapes_mmada.yaml

A command writes below its `out` or `output_dir`, or below the `output_dir` of its YAML.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import OmegaConf

from mmrl.config.checks import ConfigError
from mmrl.config.settings import flatten, load_config
from mmrl.config.shipped import find_config
from mmrl.config.yaml_file import find_chain, read_yaml

T = TypeVar("T")
_COMMAND = re.compile(r"^#\s+(python .+)$", re.MULTILINE)
_SHIPPED = Path("datasets")
_CLONE = "datasets/ comes with the repository, not with the package: run this in a clone of it."


def load_ready(cls: type[T], arguments: Sequence[str]) -> T:
    """`load_config` for a command that runs: its inputs must exist.

    Raises:
        ConfigError: see `load_config`; or inputs are missing: their keys, and the commands that
            write them.
    """
    config = load_config(cls, arguments)
    words = _by_key(arguments)
    files = find_chain(words["config"]) if "config" in words else ()
    check_inputs(config, commands("".join(file.read_text(encoding="utf-8") for file in files)))
    return config


def check_inputs(config: Any, writers: Sequence[str]) -> None:
    """Check that the inputs of a configuration exist.

    Args:
        config: a dataclass.
        writers: commands that write inputs.

    Raises:
        ConfigError: names every missing input, and the commands among `writers` that write one.
    """
    pairs = flatten(asdict(config))
    values = [(k, v) for k, v in pairs if isinstance(v, str) and k != "output_dir"]
    absent: dict[str, str] = {}
    lines: list[str] = []
    for command in writers:
        below = _absent(values, written_by(command))
        absent |= below
        lines += [f"  {command}"] * bool(below)
    if lines:
        lines.insert(0, "Write it first:")
    if not _SHIPPED.is_dir():
        absent |= _absent(values, _SHIPPED)
        lines.append(_CLONE)
    if absent:
        named = ", ".join(f"{key} is '{value}'" for key, value in absent.items())
        raise ConfigError("\n".join([f"{named}: not there.", *lines]))


def commands(text: str) -> list[str]:
    """The commands in the comments of a YAML, in order."""
    return [found.strip() for found in _COMMAND.findall(text)]


def written_by(command: str) -> Path | None:
    """The folder that a command writes, where its words or its YAML name it."""
    words = _by_key(command.split())
    folder = words.get("out") or words.get("output_dir")
    path = find_config(words.get("config", ""))
    if folder is None and path.is_file():
        folder = OmegaConf.select(read_yaml(str(path)), "output_dir")
    return None if folder is None else Path(folder).expanduser()


def _by_key(words: Sequence[str]) -> dict[str, str]:
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def _absent(values: Sequence[tuple[str, str]], folder: Path | None) -> dict[str, str]:
    """Missing paths below a folder, by key."""
    if folder is None:
        return {}
    below = {key: value for key, value in values if Path(value).is_relative_to(folder)}
    return {key: value for key, value in below.items() if not Path(value).exists()}
