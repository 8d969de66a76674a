"""YAML files of settings: read with the file they start from; and those shipped with mmrl.

A file may name another one at its top, and then states only what differs from it:

    config: configs/rl/mmada_t2i_geneval.yaml
    model: {path: Gen-Verse/MMaDA-8B-Base}

Sections are merged key by key; a list replaces the other list. The name is one as on the command
line, or a path from the folder of the file.
"""

import re
from pathlib import Path

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mmrl.config.checks import ConfigError, shorten, suggest

SHOWN = 12
"""Most files that are listed where one is missing."""
BASE = "config"
"""The key of the file that another one starts from."""


def read_yaml(path: str) -> DictConfig:
    """Read a YAML merged over the one it starts from. Raises ConfigError: a file that is missing or
    unreadable, or that starts from itself."""
    return DictConfig(OmegaConf.merge(*(layer for _, layer in reversed(_read_chain(path)))))


def find_chain(path: str) -> list[Path]:
    """The file of a YAML, then the one it starts from, and so on. See `read_yaml`."""
    return [file for file, _ in _read_chain(path)]


def explain_yaml(error: Exception) -> str:
    """The problem of a text and its place, on one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        mark = error.problem_mark
        place = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        return f"{error.problem}{place}"
    return " ".join(str(error).split())[:200]


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


def _read_chain(path: str) -> list[tuple[Path, DictConfig]]:
    chain: list[tuple[Path, DictConfig]] = []
    following: str | None = path
    while following is not None:
        beside = chain[-1][0].parent / following if chain else Path(following)
        file = beside if chain and beside.is_file() else find_config(following)
        if any(file.resolve() == earlier.resolve() for earlier, _ in chain):
            raise ConfigError(f"config: {following} in {chain[-1][0]} starts from itself.")
        layer = _read_file(file, following)
        following = layer.pop(BASE, None)
        if not (following is None or isinstance(following, str) and following):
            raise ConfigError(f"config: {following!r} in {file} must be the path of a YAML.")
        chain.append((file, layer))
    return chain


def _read_file(file: Path, name: str) -> DictConfig:
    if not file.is_file():
        raise ConfigError(f"config={shorten(name)}: there is no such file.{_neighbours(file)}")
    try:
        text = file.read_text(encoding="utf-8")
        is_mapping = isinstance(yaml.compose(text, yaml.SafeLoader), yaml.MappingNode | None)
        layer = OmegaConf.create(text) if is_mapping else None
    except (yaml.YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
        why = explain_yaml(error)
        raise ConfigError(f"config={name} is not readable as YAML: {why}.") from error
    if not isinstance(layer, DictConfig):
        raise ConfigError(f"config={name} must hold `key: value` lines.")
    return layer


def _neighbours(file: Path) -> str:
    """What is in the folder of a missing file, else what is shipped, and what was meant."""
    folder = next((each for each in (file, file.parent) if each.is_dir()), configs())
    here = sorted(folder.glob("*.y*ml")) or sorted(configs().iterdir())
    known = [*configs().glob("**/*.yaml"), *here]
    hint = suggest(file.stem, {each.stem: _shown(each) for each in known})
    names = ", ".join(each.name for each in here[:SHOWN])
    more = f" and {len(here) - SHOWN} more" if len(here) > SHOWN else ""
    return f"{hint} In {_shown(here[0].parent)} are {names}{more}."


def _shown(file: Path) -> str:
    """The path that names a YAML: `configs/…` for a shipped one."""
    folder = configs()
    return str(file.relative_to(folder.parent) if file.is_relative_to(folder) else file)
