"""Where a checkpoint comes from: a local directory, or a Hugging Face hub id."""

from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError

from mmrl.config.checks import explain_absence, is_hub_id
from mmrl.models.weights import PICKLED_NAME

PATTERNS = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")
"""Files of a repository that are downloaded; code never is."""
HALVES = "*.fp16.*"
"""Files of a second, rounded copy of the weights, which nothing here reads."""


def find_directory(
    path_or_hub_id: str | Path, pickled: bool = False, patterns: Sequence[str] = PATTERNS
) -> Path:
    """A local directory holding the checkpoint, downloaded when it is a hub id. Raises
    FileNotFoundError: neither an existing directory nor a repository the hub returned.

    Args:
        pickled: whether to fetch `pytorch_model.bin` from a repository without safetensors.
    """
    name = str(path_or_hub_id)
    path = Path(name).expanduser()
    if name and path.is_dir():
        return path
    if not is_hub_id(name):
        raise FileNotFoundError(
            f"{name!r} is neither an existing directory nor a hub id such as"
            " Gen-Verse/MMaDA-8B-MixCoT or showlab/magvitv2. Give one of both."
        )
    try:
        return _download(name, pickled, patterns)
    except (HfHubHTTPError, OSError) as error:
        absence = explain_absence(name, error)
    # outside, for the errors of the client below it are pages long
    raise FileNotFoundError(absence)


def _download(hub_id: str, pickled: bool, patterns: Sequence[str]) -> Path:
    wanted = {"allow_patterns": list(patterns), "ignore_patterns": HALVES}
    directory = Path(snapshot_download(hub_id, **wanted))
    if pickled and not any(directory.glob("*.safetensors")):
        wanted["allow_patterns"] = [*PATTERNS, PICKLED_NAME]
        snapshot_download(hub_id, **wanted)
    return directory
