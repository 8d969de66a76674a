"""Uploading a finished model, and what it wrote while it was trained, to the Hugging Face hub.

The token is that of the environment, `HF_TOKEN` or `hf auth login`; it is in no setting and no log.
"""

import logging
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mmrl.config import check
from mmrl.run.run_log import warn_of_failure
from mmrl.runtime.activity import activity

logger = logging.getLogger(__name__)


def check_token(key: str, value: Any, off: str) -> None:
    """Raise a ConfigError of a setting that uploads, where there is no token."""
    from huggingface_hub import get_token

    advice = "Log in by `hf auth login`, or set the environment variable HF_TOKEN."
    check(get_token() is not None, key, value, f"{off} without a token of the hub", advice)


def upload(
    folder: Path, repository: str, private: bool | None, kind: str, card: Callable[[str], object]
) -> None:
    """Upload a finished model, or a data set of completions, to a repository of the hub of this
    kind, which is made where it does not exist; a failure is a warning. It is `owner/name`, or a
    name below the owner of the token; a new one is `private` or not, and follows with None the
    default of its owner. `card` writes the card of the folder for the name of a repository."""
    command = shlex.join(["hf", "upload", repository, str(folder), "--repo-type", kind])
    key = "hub_model_id" if kind == "model" else "log_completions_hub_repo"
    what = f"{key}: the upload of '{folder}' to '{repository}'"
    advice, shown = f"Correct that and upload it: {command}", f"uploading to {repository}"
    with warn_of_failure(what, advice), activity(shown, timed=False):
        from huggingface_hub import HfApi

        card(repository)  # also where the rest fails, and is done by hand
        api = HfApi(library_name="mmrl")
        made = api.create_repo(repository, private=private, exist_ok=True, repo_type=kind)
        card(made.repo_id)
        said = f"{kind.capitalize()} of a run of mmrl"
        api.upload_folder(
            repo_id=made.repo_id, folder_path=folder, commit_message=said, repo_type=kind
        )
        logger.info("'%s' is uploaded to %s", folder, made.repo_id)
