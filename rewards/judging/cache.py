"""Replies kept on disk under the hash of everything that was asked.

Each reply is a file that is written aside and renamed, so several processes may share a folder. A
damaged one has no score, so the judge is asked again and it is replaced.
"""

import hashlib
import json
import logging
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

logger = logging.getLogger(__name__)


def hash_request(request: dict[str, Any]) -> str:
    """Hash of a request: model, settings, words, and the bytes of images."""
    text = json.dumps(request, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read_reply(folder: Path, key: str) -> str | None:
    """The reply of a key; None if there is none."""
    path = folder / f"{key}.txt"
    return path.read_text("utf-8", "replace") if path.is_file() else None


def keep_reply(folder: Path, key: str, reply: str) -> None:
    """Keep a reply under a key."""
    try:
        with NamedTemporaryFile("w", encoding="utf-8", dir=folder, delete=False) as file:
            file.write(reply)
        Path(file.name).replace(folder / f"{key}.txt")
    except (OSError, ValueError) as error:  # the cache is optional
        logger.warning("%s cannot be written (%s)", folder, error)
