"""The configurations that come with mmrl, in a checkout and in an installed package."""

from __future__ import annotations

import re
from pathlib import Path


def configs() -> Path:
    """The folder `configs`: inside the installed package, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def find_config(path: str) -> Path:
    """A YAML by its path; where there is none, the shipped one that `configs/…` names."""
    given = Path(path).expanduser()
    if given.is_file() or given.parts[:1] != ("configs",):
        return given
    return configs().joinpath(*given.parts[1:])


def shipped(folder: str) -> list[Path]:
    """The YAML files of a folder of `configs/`, by name."""
    return sorted((configs() / folder).glob("*.yaml"))


def first_line(path: Path) -> str:
    """What a YAML says it is for: the first sentence of the comment that it begins with."""
    comment = re.match(r"(?:#.*\n)*", path.read_text(encoding="utf-8"))
    text = re.sub(r"\s*\n# ?", " ", "\n" + (comment[0] if comment else "")).strip()
    sentence = re.match(r".*?\.(?=\s|$)", text)
    return sentence[0] if sentence else text
