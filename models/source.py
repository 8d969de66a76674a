"""Where a checkpoint comes from: a local directory, or a Hugging Face hub id."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

PATTERNS = ("*.json", "*.safetensors", "*.txt", "*.model")
"""Files of a repository worth downloading; code is never fetched."""


def find_directory(path_or_hub_id: str | Path, patterns: tuple[str, ...] = PATTERNS) -> Path:
    """A local directory holding the checkpoint, downloaded when it is a hub id.

    Raises:
        FileNotFoundError: neither an existing directory nor a repository the hub returned.
    """
    path = Path(path_or_hub_id).expanduser()
    if path.is_dir():
        return path
    try:
        return Path(snapshot_download(str(path_or_hub_id), allow_patterns=list(patterns)))
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        raise FileNotFoundError(
            f"{str(path_or_hub_id)!r} is neither an existing directory nor a repository that the"
            f" Hugging Face hub returned ({type(error).__name__}: {reason}). Give the path of a"
            " checkpoint directory, or a hub id such as Gen-Verse/MMaDA-8B-MixCoT."
        ) from error
