"""The log of the server: one JSON object a line."""

import json
import logging
import sys
from datetime import datetime, timezone
from typing import Any


class JsonLines(logging.Formatter):
    """Time, level, logger, message, and the `fields` of a record."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat()
        line = {"time": time, "level": record.levelname.lower(), "logger": record.name}
        line |= {"message": record.getMessage(), **record.__dict__.get("fields", {})}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


class OncePerMinute(logging.Filter):
    """Passes one of several equal refusals, errors or warnings, with the number of skipped ones.

    Args:
        seconds: until the next one is passed.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        super().__init__()
        self.seconds = seconds
        self._last: dict[Any, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is written."""
        fields = record.__dict__.get("fields", {})
        if record.levelno < logging.WARNING and fields.get("status", 0) < 400 or "item" in fields:
            return True
        key = record.name, record.msg, fields.get("path"), fields.get("status"), fields.get("code")
        written, left_out = self._last.get(key, (-self.seconds, 0))
        if record.created - written < self.seconds:
            self._last[key] = written, left_out + 1
            return False
        self._last[key] = record.created, 0
        if left_out:
            record.__dict__["fields"] = {**fields, "left_out": left_out}
        return True


def start_log() -> None:
    """Log to stderr: information of the server, warnings of all other packages."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    handler.addFilter(OncePerMinute())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("mmrl.rewards.server").setLevel(logging.INFO)
    logging.captureWarnings(True)
