"""Where a checkpoint comes from: a local directory, or a Hugging Face hub id."""

from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from mmrl.models.weights import PICKLED_NAME

PATTERNS = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")
"""Files of a repository that are downloaded; code never is."""
HALVES = "*.fp16.*"
"""Files of a second, rounded copy of the weights, which nothing here reads."""


def find_directory(
    path_or_hub_id: str | Path, pickled: bool = False, patterns: Sequence[str] = PATTERNS
) -> Path:
    """A local directory holding the checkpoint, downloaded when it is a hub id.

    Args:
        path_or_hub_id: an existing directory, or else a hub id.
        pickled: whether to fetch `pytorch_model.bin` from a repository without safetensors.
        patterns: of the files that are downloaded.

    Raises:
        FileNotFoundError: neither an existing directory nor a repository the hub returned.
    """
    path = Path(path_or_hub_id).expanduser()
    if str(path_or_hub_id) and path.is_dir():
        return path
    try:
        return _download(str(path_or_hub_id), pickled, patterns)
    except (HFValidationError, HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise FileNotFoundError(
            f"{str(path_or_hub_id)!r} is neither an existing directory nor a repository that the"
            f" Hugging Face hub returned ({type(error).__name__}: {reason}). Give the path of a"
            " checkpoint directory, or a hub id such as Gen-Verse/MMaDA-8B-MixCoT or"
            " showlab/magvitv2."
        ) from error


def _download(hub_id: str, pickled: bool, patterns: Sequence[str]) -> Path:
    directory = Path(
        snapshot_download(hub_id, allow_patterns=list(patterns), ignore_patterns=HALVES)
    )
    if pickled and not any(directory.glob("*.safetensors")):
        patterns = [*PATTERNS, PICKLED_NAME]
        return Path(snapshot_download(hub_id, allow_patterns=patterns, ignore_patterns=HALVES))
    return directory
