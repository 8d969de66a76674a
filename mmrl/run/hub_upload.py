"""Uploading a finished model to the Hugging Face hub.

The token is that of the environment, `HF_TOKEN` or `hf auth login`; it is in no setting and no log.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmrl.config import check
from mmrl.run.checkpoint import CHECKSUMS, LAST

logger = logging.getLogger(__name__)


class UploadError(RuntimeError):
    """A model that could not be uploaded; it is complete on this machine."""


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


def upload(folder: Path, repository: str, private: bool | None) -> str:
    """Create a repository of the hub where it does not exist, and upload a model.

    Args:
        folder: of the model.
        repository: `owner/name`, or a name below the owner of the token.
        private: whether a new repository is; None follows the default of its owner.

    Returns:
        The whole name of the repository.

    Raises:
        UploadError: it could not be uploaded.
    """
    with _explain_failure(folder, repository):
        found = _upload(folder, repository, private, "Model trained by mmrl", [])
    logger.info("uploaded to %s", found)
    return found


def upload_checkpoint(folder: Path, repository: str, private: bool | None, whole: bool) -> None:
    """Upload the model of a checkpoint, as transformers does while it trains.

    Args:
        folder: of the checkpoint.
        repository: as for `upload`.
        private: as for `upload`.
        whole: whether to upload the state of the trainer as well, with the model once more, as
            `last-checkpoint/`.

    Raises:
        UploadError: it could not be uploaded.
    """
    message = f"Training in progress, step {folder.name}"
    with _explain_failure(folder, repository):
        found = _upload(folder, repository, private, message, TRAINER_FILES)
        if whole:
            _upload(folder, repository, private, message, None, LAST)
    logger.info("checkpoint %s: uploaded to %s", folder.name, found)


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


@contextmanager
def _explain_failure(folder: Path, repository: str) -> Iterator[None]:
    from httpx import HTTPError
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except (HfHubHTTPError, HTTPError, OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split()) or "no reason given"
        raise UploadError(
            f"hub_model_id: the model could not be uploaded to '{repository}'"
            f" ({type(error).__name__}: {reason}). It is complete in '{folder}'. Correct that and"
            f" upload it: hf upload {repository} {folder}"
        ) from error
