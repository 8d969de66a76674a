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


class ReplyCache:
    """Replies by the keys of their requests.

    Args:
        folder: created if it does not exist; None caches nothing.

    Raises:
        OSError: the folder cannot be made.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: str) -> str | None:
        """The cached reply; None if there is none."""
        path = self.folder and self.folder / f"{key}.txt"
        return path.read_text("utf-8", "replace") if path and path.is_file() else None

    def put(self, key: str, reply: str) -> None:
        """Keep a reply."""
        if self.folder is None:
            return
        try:
            with NamedTemporaryFile("w", encoding="utf-8", dir=self.folder, delete=False) as file:
                file.write(reply)
            Path(file.name).replace(self.folder / f"{key}.txt")
        except (OSError, ValueError) as error:  # the cache is optional
            logger.warning("%s cannot be written (%s)", self.folder, error)
