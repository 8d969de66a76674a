"""Rows of prompts as UniRL's launchers read them.

The text is under `prompt` or `caption`, the id under `prompt_id`. `media` or `media_refs` list what
belongs to it, `{modality, role, uri}` each, where a uri is a path relative to the file. A mapping
under `metadata` is folded into the row: its keys become columns.
"""

from collections.abc import Mapping
from typing import Any

from mmrl.data.questions import Row, drop_empty, omit

TEXTS, MEDIA = ("prompt", "caption"), ("media", "media_refs")
ROLES = (None, "input", "condition", "source", "reference", "first_frame")
"""Roles of images that a prompt gives, of which a task says what they are for."""


def unirl(row: Row) -> Row:
    """A row with the columns of prompts and rewards."""
    computed = sorted(key for key in row if "embed" in key)
    if computed:
        raise ValueError(
            f"{computed[0]!r} holds embeddings that were computed before, which are not read; leave"
            " the column out, texts are encoded once here (model.encodings_dir keeps them)"
        )
    folded = row.get("metadata") or {}
    if not isinstance(folded, Mapping):
        raise ValueError(f"metadata is {type(folded).__name__}, not a mapping of columns")
    text = next((row[key] for key in TEXTS if row.get(key)), None)
    if text is None:
        raise KeyError("prompt")
    media = [each for key in MEDIA for each in row.get(key) or ()]
    rest = omit(row, *TEXTS, *MEDIA, "prompt_id", "metadata")
    images = [read_medium(each) for each in media]
    return {
        **folded,
        **rest,
        **drop_empty(id=row.get("prompt_id"), images=images or None),
        "prompt": text,
    }


def read_medium(medium: Any) -> str:
    """The path of an image that a prompt gives. Raises ValueError: it is something else."""
    if not isinstance(medium, Mapping) or not isinstance(medium.get("uri"), str):
        raise ValueError(f"{medium!r} is no medium, that is {{modality, role, uri}}")
    modality, role, uri = medium.get("modality", "image"), medium.get("role"), medium["uri"]
    if modality != "image":
        raise ValueError(f"its medium {uri!r} is {modality}; prompts give images")
    if role not in ROLES:
        names = ", ".join(filter(None, ROLES))
        raise ValueError(f"the role of {uri!r} is {role!r}; those of images of prompts: {names}")
    return uri.removeprefix("file://")
