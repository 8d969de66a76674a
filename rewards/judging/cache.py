"""Replies kept on disk under the hash of everything that was asked.

Each reply is a file that is written aside and renamed, so several processes may share a folder. A
damaged file is ignored and written again.
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
        """The cached reply; None if there is none or it is damaged."""
        path = self.folder and self.folder / f"{key}.json"
        if path is None or not path.is_file():
            return None
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
            return entry["reply"] if entry["request"] == key else None
        except (OSError, ValueError, LookupError, TypeError) as error:
            logger.warning("%s cannot be read (%s); the judge is asked again", path, error)
            return None

    def put(self, key: str, reply: str) -> None:
        """Keep a reply."""
        if self.folder is None:
            return
        try:
            with NamedTemporaryFile("w", encoding="utf-8", dir=self.folder, delete=False) as file:
                json.dump({"request": key, "reply": reply}, file)
            Path(file.name).replace(self.folder / f"{key}.json")
        except OSError as error:  # the cache is optional
            logger.warning("%s cannot be written (%s)", self.folder, error)
