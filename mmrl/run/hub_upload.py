"""Uploading a finished model to the Hugging Face hub.

The token is that of the environment, `HF_TOKEN` or `hf auth login`; it is in no setting and no log.
"""

import logging
import shlex
from contextlib import AbstractContextManager
from pathlib import Path

from mmrl.config import check
from mmrl.run.checkpoint import CHECKSUMS, LAST
from mmrl.run.failures import warn_of_failure

logger = logging.getLogger(__name__)


def check_upload(repository: str | None) -> None:
    """Check what is possible before a run: the form of a repository's name, and a token.

    Raises:
        ConfigError: see above.
    """
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repository or "name")
        fits = True
    except HFValidationError:
        fits = False
    allowed = "null for the name of output_dir, or a repository of the hub: owner/name or name"
    check(fits, "hub_model_id", repository, allowed)
    advice = "Log in by `hf auth login`, or set the environment variable HF_TOKEN."
    check(get_token() is not None, "push_to_hub", True, "false without a token of the hub", advice)
    offline = constants.is_offline_mode()
    check(not offline, "push_to_hub", True, "false with HF_HUB_OFFLINE", "Unset that variable.")


TRAINER_FILES = ["trainer_state.pt", "value/*", "reward_versions.json"]
"""What a checkpoint has besides its model."""


def upload(folder: Path, repository: str, private: bool | None) -> None:
    """Create a repository of the hub where it does not exist, and upload a model.

    Args:
        folder: of the model.
        repository: `owner/name`, or a name below the owner of the token.
        private: whether a new repository is; None follows the default of its owner.
    """
    with _warn(folder, repository):
        found = _upload(folder, repository, private, "Model trained by mmrl", [])
        logger.info("uploaded to %s", found)


def upload_checkpoint(folder: Path, repository: str, private: bool | None, whole: bool) -> None:
    """Upload the model of a checkpoint, as transformers does while it trains.

    Args:
        folder: of the checkpoint.
        repository: as for `upload`.
        private: as for `upload`.
        whole: whether to upload the state of the trainer as well, with the model once more, as
            `last-checkpoint/`.
    """
    message = f"Training in progress, step {folder.name}"
    with _warn(folder, repository):
        found = _upload(folder, repository, private, message, TRAINER_FILES)
        if whole:
            _upload(folder, repository, private, message, None, LAST)
        logger.info("checkpoint %s: uploaded to %s", folder.name, found)


def _warn(folder: Path, repository: str) -> AbstractContextManager[None]:
    what = f"hub_model_id: the upload of '{folder}' to '{repository}'"
    command = shlex.join(["hf", "upload", repository, str(folder)])
    return warn_of_failure(what, f"Correct that and upload it: {command}")


def _upload(
    folder: Path,
    repository: str,
    private: bool | None,
    message: str,
    ignored: list[str] | None,
    path_in_repo: str | None = None,
) -> str:
    """Upload a folder without `ignored` and the checksums; with these where `ignored` is None."""
    from huggingface_hub import HfApi

    api = HfApi(library_name="mmrl")
    found = api.create_repo(repository, private=private, exist_ok=True).repo_id
    api.upload_folder(
        repo_id=found,
        folder_path=folder,
        path_in_repo=path_in_repo,
        commit_message=message,
        ignore_patterns=None if ignored is None else [CHECKSUMS, *ignored],
    )
    return found
