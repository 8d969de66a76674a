"""The image tokenizer that a checkpoint names, as `vq` in its tokenizer_config.json, or holds.

That file lies in whole checkpoints and in adapters; of a key in adapter_config.json that it does
not know, peft warns.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from mmrl.config.settings_file import read_settings_file
from mmrl.models.image_tokenizers import SUBFOLDER

KEY, FILE = "vq", "tokenizer_config.json"


def find_vq(directories: Iterable[Path]) -> str | None:
    """A path or hub id: what the first of some checkpoints that names or holds one has. Raises
    FileNotFoundError: it names a directory that is not there."""
    for directory in directories:
        file = directory / FILE
        if file.is_file() and (named := read_settings_file(file).get(KEY)) is not None:
            found = resolve_vq(str(named), directory)
            if os.path.isabs(found) and not os.path.isdir(found):
                raise FileNotFoundError(
                    f"'{file}': {KEY} is {named!r}, an image tokenizer, and there is no directory"
                    f" '{found}'. Write where it is into that file, or name it beside the model."
                )
            return found
        if (directory / SUBFOLDER).is_dir():
            return str(directory / SUBFOLDER)
    return None


def resolve_vq(named: str, directory: Path) -> str:
    """The absolute path of what a checkpoint in `directory` names; a hub id stays as it is."""
    return str((directory / named).resolve()) if named.startswith(".") else named


def name_vq(vq: str, directory: Path) -> str:
    """How a checkpoint in `directory` names an absolute path or hub id: by a path relative to it,
    which stays right where both move, unless they have only the root in common."""
    path, place = Path(vq).resolve(), directory.resolve()
    if not os.path.isabs(vq) or os.path.commonpath((path, place)) == path.anchor:
        return vq
    relative = os.path.relpath(path, place)
    return relative if relative.startswith(".") else os.path.join(".", relative)
