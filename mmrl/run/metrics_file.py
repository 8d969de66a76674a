"""`metrics.jsonl` of a run: one JSON object per line, with its `step`."""

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeGuard


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the lines in order of steps, without truncated ones and those without a step."""
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        with suppress(ValueError, RecursionError):
            line = json.loads(text)
            if isinstance(line, dict) and is_number(line.get("step")):
                lines.append(line)
    return sorted(lines, key=lambda line: line["step"])


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)
