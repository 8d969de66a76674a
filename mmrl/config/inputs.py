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
from mmrl.config.yaml_file import find_chain, find_config, read_yaml

T = TypeVar("T")
COMMAND = re.compile(r"^#\s+(python .+?)\s*$", re.MULTILINE)
"""A command in the comments of a YAML."""
SHIPPED = Path("datasets")
"""What comes with the repository and not with the package."""


def load_ready(cls: type[T], arguments: Sequence[str]) -> T:
    """`load_config` for a command that runs: its inputs must exist.

    Raises:
        ConfigError: see `load_config`; or inputs are missing: their keys, and the commands that
            write them.
    """
    config, words = load_config(cls, arguments), _by_key(arguments)
    files = find_chain(words["config"]) if "config" in words else ()
    texts = [file.read_text(encoding="utf-8") for file in files]
    check_inputs(config, COMMAND.findall("".join(texts)))
    return config


def check_inputs(config: Any, writers: Sequence[str]) -> None:
    """Check that the inputs of a configuration exist.

    Raises:
        ConfigError: names every missing input, and the commands among `writers` that write one.
    """
    pairs = [(key, value) for key, value in flatten(asdict(config)) if isinstance(value, str)]
    missing = {k: Path(v) for k, v in pairs if k != "output_dir" and not Path(v).exists()}

    def below(folder: Path | None) -> set[str]:
        return {key for key, path in missing.items() if folder and path.is_relative_to(folder)}

    found = {f"  {command}": below(written_by(command)) for command in writers}
    lines = [line for line, keys in found.items() if keys]
    lines[:0] = ["Write it first:"] if lines else []
    if not SHIPPED.is_dir():
        found[""] = below(SHIPPED)
        lines.append(f"{SHIPPED}/ comes with the repository, not with the package: run in a clone.")
    if absent := set().union(*found.values()):
        named = ", ".join(f"{key} is '{path}'" for key, path in missing.items() if key in absent)
        raise ConfigError("\n".join([f"{named}: not there.", *lines]))


def written_by(command: str) -> Path | None:
    """The folder that a command writes, where its words or its YAML name it."""
    words = _by_key(command.split())
    folder, path = words.get("out") or words.get("output_dir"), find_config(words.get("config", ""))
    if folder is None and path.is_file():
        folder = OmegaConf.select(read_yaml(str(path)), "output_dir")
    return None if folder is None else Path(folder).expanduser()


def _by_key(words: Sequence[str]) -> dict[str, str]:
    return {key: value for key, _, value in (word.partition("=") for word in words)}
