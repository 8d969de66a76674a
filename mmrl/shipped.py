"""The configurations that come with mmrl, and what each is for."""

from __future__ import annotations

import re
from pathlib import Path

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


def shipped(folder: str) -> list[Path]:
    """The YAML files of a folder of `configs/`, by name."""
    return sorted((CONFIGS / folder).glob("*.yaml"))


def first_line(path: Path) -> str:
    """What a YAML says it is for: the first sentence of the comment that it begins with."""
    comment = re.match(r"(?:#.*\n)*", path.read_text(encoding="utf-8"))
    text = re.sub(r"\s*\n# ?", " ", "\n" + (comment[0] if comment else "")).strip()
    sentence = re.match(r".*?\.(?=\s|$)", text)
    return sentence[0] if sentence else text
