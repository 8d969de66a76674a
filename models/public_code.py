"""The public modelling code of an exported checkpoint, so that transformers' AutoModel loads it.

The `auto_map` of a config.json names classes in files beside it, or after `repository--` in files
of the hub. An export keeps that of its source: the files are copied from a local directory, as
text, and stay on the hub for a source from there. Nothing of them is ever imported here.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mmrl.models.image_tokenizers import SUBFOLDER

SETTINGS = ("generation_config.json", "model_index.json")


class Source(NamedTuple):
    """Where a network was loaded from: the name that was given, and its directory here."""

    name: str
    directory: Path

    @property
    def hub_id(self) -> str | None:
        """The name, if it is a repository of the hub."""
        return None if Path(self.name).expanduser().is_dir() else self.name


def describe_code(config: Mapping[str, Any], source: Source | None) -> dict[str, Any]:
    """The config.json of an export: its `auto_map`, where it has one, leads to code from wherever
    it is read. A new network has no source."""
    if source is None or "auto_map" not in config:
        return dict(config)

    def find(entry: Any) -> Any:
        if isinstance(entry, list):
            return [find(each) for each in entry]
        known = entry is None or "--" in entry or source.hub_id is None
        return entry if known else f"{source.hub_id}--{entry}"

    return {**config, "auto_map": {name: find(entry) for name, entry in config["auto_map"].items()}}


def copy_code(source: Source, config: Mapping[str, Any], directory: Path) -> None:
    """Copy the public code of a local source, where `config` reads it from beside, its
    generation_config.json, and the image tokenizer that it holds, into the directory of an
    export."""
    if source.directory.resolve() == directory.resolve():
        return
    entries = str(list(config.get("auto_map", {}).values()))
    local = source.hub_id is None and "auto_map" in config and "--" not in entries
    files = sorted(source.directory.glob("*.py")) if local else []
    for file in [*files, *(source.directory / name for name in SETTINGS)]:
        if file.is_file():
            shutil.copyfile(file, directory / file.name)
    if (source.directory / SUBFOLDER).is_dir():
        shutil.copytree(source.directory / SUBFOLDER, directory / SUBFOLDER, dirs_exist_ok=True)
