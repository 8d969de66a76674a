"""The log of the server: one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone


class JsonLines(logging.Formatter):
    """Time, level, logger, message, and the `fields` a record was given."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat()
        line = {"time": time, "level": record.levelname.lower(), "logger": record.name}
        line |= {"message": record.getMessage(), **record.__dict__.get("fields", {})}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


def start_log() -> None:
    """Send everything to stderr: information of the server, warnings of all others."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("rewards.server").setLevel(logging.INFO)
    logging.captureWarnings(True)
