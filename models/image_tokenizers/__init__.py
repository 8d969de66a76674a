"""VQ image tokenizers, one file each: pixels to codes and back.

A checkpoint names the one that it was trained with as `vq` in its tokenizer_config.json, which lies
in adapters too; of a key in adapter_config.json that it does not know, peft warns.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from mmrl.config.settings_file import read_settings_file

IMAGE_TOKENIZERS = {
    "MAGVITv2": "mmrl.models.image_tokenizers.magvit:MagvitV2",
    "VQModel": "mmrl.models.image_tokenizers.vq_model:VQModel",
}
"""`_class_name` of a config.json -> class."""
PUBLIC_KIND = "MAGVITv2"
"""The kind of a tokenizer whose config.json does not say it: showlab/magvitv2."""
PUBLIC_VQ = "showlab/magvitv2"
"""The published tokenizer of that kind, for checkpoints that neither name nor hold one."""
OWN_VQ = "auto"
"""In place of a path or hub id: what the checkpoint names or holds, else `PUBLIC_VQ`."""
SUBFOLDER = "vqvae"
"""Where a checkpoint in diffusers' layout has its own image tokenizer."""
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
