"""The configurations shipped with mmrl, in a checkout or in the installed package."""

import re
from pathlib import Path


def configs() -> Path:
    """The folder `configs`; in a checkout the package has a link to it."""
    return (Path(__file__).resolve().parents[1] / "configs").resolve()


def find_config(path: str) -> Path:
    """Find a YAML by its path; for `configs/…` without such a file, the shipped one."""
    given = Path(path).expanduser()
    if given.is_file() or given.parts[:1] != ("configs",):
        return given
    return configs().joinpath(*given.parts[1:])


def shipped(folder: str) -> list[Path]:
    """The YAML files of a folder of `configs/`, sorted by name."""
    return sorted((configs() / folder).glob("*.yaml"))


def first_line(path: Path) -> str:
    """The first sentence of the comment at the start of a YAML."""
    comment = re.match(r"(?:#.*\n)*", path.read_text(encoding="utf-8"))
    text = re.sub(r"\s*\n# ?", " ", "\n" + (comment[0] if comment else "")).strip()
    sentence = re.match(r".*?\.(?=\s|$)", text)
    return sentence[0] if sentence else text
