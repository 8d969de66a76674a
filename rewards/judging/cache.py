"""Replies kept on disk under the hash of everything that was asked.

Each reply is a file that is written aside and renamed, so several processes may share a folder. A
damaged file is ignored and written again.
"""

import hashlib
import json
import logging
import os
import tempfile
from pathlib import Path
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
        if self.folder is None:
            return None
        path = self._path(key)
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
            if entry == _entry(key, entry["reply"]):
                return entry["reply"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("%s cannot be read (%s); the judge is asked again", path, error)
            return None
        logger.warning("%s is not what was written; the judge is asked again", path)
        return None

    def put(self, key: str, reply: str) -> None:
        """Keep a reply."""
        if self.folder is None:
            return
        path = self._path(key)
        try:
            path.parent.mkdir(exist_ok=True)
            handle, aside = tempfile.mkstemp(dir=path.parent, suffix=".part")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(_entry(key, reply), file)
            os.replace(aside, path)
        except OSError as error:  # the cache is optional
            logger.warning("%s cannot be written (%s)", path, error)

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / key[:2] / f"{key}.json"


def _entry(key: str, reply: str) -> dict[str, str]:
    digest = hashlib.sha256(reply.encode(errors="replace")).hexdigest()
    return {"request": key, "reply": reply, "sha256": digest}
