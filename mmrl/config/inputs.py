"""Files that a configuration reads and that must be written, or cloned, before it can run.

The comments of a YAML name the commands that write its inputs below `runs/`, each on a line:

    #   python datasets/shapes/write.py out=runs/shapes_world
    #   python -m mmrl.sft config=configs/sft/shapes_mmada.yaml
"""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from mmrl.config.checks import ConfigError
from mmrl.config.settings import flatten, load_config
from mmrl.config.yaml_file import find_chain

T = TypeVar("T")
COMMAND = re.compile(r"^#\s+(python .+?)\s*$", re.MULTILINE)
"""A command in the comments of a YAML."""


def load_ready(cls: type[T], arguments: Sequence[str]) -> T:
    """`load_config` for a command that runs: its inputs must exist.

    Raises:
        ConfigError: see `load_config`; or an input is missing, with its key, and the commands that
            write it where the YAML that names it has them in its comments.
    """
    config: Any = load_config(cls, arguments)
    words = {key: value for key, _, value in (word.partition("=") for word in arguments)}
    files = find_chain(words["config"]) if "config" in words else ()
    texts = [file.read_text(encoding="utf-8") for file in files]
    for key, value in flatten(asdict(config)):
        folder = value.partition("/")[0] if isinstance(value, str) else ""
        if folder not in ("datasets", "runs") or key.endswith("_dir") or Path(value).exists():
            continue
        said = f"{key} is '{value}': not there."
        if folder == "datasets" and not Path(folder).is_dir():
            advice = "datasets/ comes with the repository, not with the package: run in a clone."
            raise ConfigError(f"{said} {advice}")
        naming = [text for text in texts if value in text and folder == "runs"]
        if commands := COMMAND.findall("".join(naming[:1])):
            raise ConfigError("\n  ".join([f"{said} Write it first:", *commands]))
    return config
