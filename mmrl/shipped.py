"""The configurations that come with mmrl, and what each is for."""

from __future__ import annotations

from pathlib import Path

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


def shipped(folder: str) -> list[Path]:
    """The YAML files of a folder of `configs/`, by name."""
    return sorted((CONFIGS / folder).glob("*.yaml"))


def first_line(path: Path) -> str:
    """What a YAML says it is for: the sentence that its first comment begins with."""
    words = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        words.append(line.lstrip("# ").rstrip())
        if line.rstrip().endswith((".", ":")):
            break
    return " ".join(words)
