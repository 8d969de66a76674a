"""The log of the server: one JSON object a line."""

import json
import logging
import sys
from datetime import datetime, timezone


class JsonLines(logging.Formatter):
    """Time, level, logger, message, and the `fields` of a record."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat()
        line = {"time": time, "level": record.levelname.lower(), "logger": record.name}
        line |= {"message": record.getMessage(), **record.__dict__.get("fields", {})}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def start_log() -> None:
    """Log to stderr: information of the server, warnings of all other packages."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("mmrl.rewards.server").setLevel(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it warns of every bad request
    logging.captureWarnings(True)
