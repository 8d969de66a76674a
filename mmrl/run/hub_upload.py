"""Uploading a finished model to the Hugging Face hub.

The token is that of the environment, `HF_TOKEN` or `hf auth login`; it is in no setting and no log.
"""

import logging
from pathlib import Path

from mmrl.config import check

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
    from httpx import HTTPError
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        api = HfApi(library_name="mmrl")
        found = api.create_repo(repository, private=private, exist_ok=True).repo_id
        api.upload_folder(
            repo_id=found,
            folder_path=folder,
            commit_message="Model trained by mmrl",
            ignore_patterns=["SHA256SUMS"],
        )
    except (HfHubHTTPError, HTTPError, OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split()) or "no reason given"
        raise UploadError(
            f"hub_model_id: the model could not be uploaded to '{repository}'"
            f" ({type(error).__name__}: {reason}). It is complete in '{folder}'. Correct that and"
            f" upload it: hf upload {repository} {folder}"
        ) from error
    logger.info("uploaded to %s", found)
    return found
