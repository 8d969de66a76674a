"""Where the configurations that come with mmrl are, in a checkout and in an installed package."""

from __future__ import annotations

from pathlib import Path


def configs() -> Path:
    """The folder `configs`: inside the installed package, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def find_config(path: str) -> Path:
    """A YAML by its path; where there is none, the shipped one that `configs/…` names."""
    given = Path(path).expanduser()
    if given.is_file() or given.parts[:1] != ("configs",):
        return given
    return configs().joinpath(*given.parts[1:])
