"""Configuration in three layers: typed dataclass defaults, a YAML file, a command-line dotlist.

    python -m mmrl.rl config=configs/rl/quickstart.yaml model.lora.r=8 learning_rate=1e-5

OmegaConf merges and type-checks; the results are plain dataclass objects. An unknown key, a wrong
type or an impossible value fails here, before any model loads, as a `ConfigError` that names the
key, the value, what is allowed and what to do.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from mmrl.config.by_name import write_name
from mmrl.config.checks import ConfigError, check, suggest
from mmrl.config.merging import merge
from mmrl.config.yaml_file import explain_yaml, find_chain, read_yaml

T = TypeVar("T")
COMMAND = re.compile(r"^#\s+(python .+?)\s*$", re.MULTILINE)
"""A command in the comments of a YAML, on a line, that writes an input below `runs/`:

    #   python datasets/shapes/write.py out=runs/shapes_world
"""


def load_config(cls: type[T], arguments: Sequence[str]) -> T:
    """Build a `cls`, a dataclass whose nested ones are sections, from its defaults, the YAML named
    by `config=…` and `key.sub=value` overrides; `~key.sub` leaves out a key of the YAML, as in
    Hydra.

    Raises ConfigError: a word without `=`, a missing or unreadable YAML file, an unknown key, a
    value of the wrong type, or whatever the dataclasses' own checks reject."""
    words = _words(arguments)
    path = words.pop("config", None)
    content = OmegaConf.create() if path is None else read_yaml(path)
    for word in arguments:
        if word.startswith("~"):
            _leave_out(word[1:], content)
    for key, value in words.items():
        check_word(key, value)
    overrides = [f"{key}={value}" for key, value in words.items()]
    return merge(cls, content, OmegaConf.from_dotlist(overrides))


def load_ready(cls: type[T], arguments: Sequence[str]) -> T:
    """`load_config` for a command that runs: its inputs must exist. Raises ConfigError: see
    `load_config`; or an input is missing, with its key, and the commands that write it where the
    YAML that names it has them in its comments, see `COMMAND`."""
    config: Any = load_config(cls, arguments)
    path = _words(arguments).get("config")
    texts = [file.read_text(encoding="utf-8") for file in find_chain(path)] if path else []
    for key, value in flatten(dataclasses.asdict(config)):
        folder = value.partition("/")[0] if isinstance(value, str) else ""
        if folder not in ("datasets", "runs") or key.endswith("_dir") or Path(value).exists():
            continue
        said = f"{key} is '{value}': not there."
        if folder == "datasets" and not Path(folder).is_dir():
            advice = "datasets/ comes with the repository, not with the package: run in a clone."
            raise ConfigError(f"{said} {advice}")
        naming = [text for text in texts if value in text and folder == "runs"]
        if commands := COMMAND.findall("".join(naming[:1])):
            raise ConfigError("\n  ".join([f"{said} Write it first:", *commands]))
    return config


def read_key(arguments: Sequence[str], key: str) -> Any:
    """Read one key of the top level from command-line words, or else from the YAML they name; None
    where neither has it. Raises ConfigError: a word without `=`, or a missing or unreadable YAML
    file."""
    words = _words(arguments)
    if key in words or "config" not in words:
        return words.get(key)
    return read_yaml(words["config"]).get(key)


def to_yaml(config: Any) -> str:
    """The resolved configuration as YAML text; Python objects as `to_plain` writes them."""
    return OmegaConf.to_yaml(OmegaConf.create(to_plain(config)))


def to_plain(value: Any) -> Any:
    """The configuration as plain containers, numbers and texts; functions and other callables, such
    as a reward, as names that `mmrl.config.by_name.find` reads."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and not callable(value):
        value = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if callable(value):
        return write_name(value)
    return value if value is None or isinstance(value, str | int | float) else repr(value)


def flatten(content: Any, key: str = "", lists: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield every value below plain containers with its dotted key; an empty one is a value.
    Without `lists` a list is one value, else its items have keys such as `rewards[0]`."""
    if isinstance(content, Mapping) and content:
        for name, item in content.items():
            yield from flatten(item, f"{key}.{name}" if key else str(name), lists)
    elif lists and isinstance(content, list | tuple) and content:
        for n, item in enumerate(content):
            yield from flatten(item, f"{key}[{n}]")
    else:
        yield key, content


def _words(arguments: Sequence[str]) -> dict[str, str]:
    words = {}
    for word in arguments:
        key, equals, value = word.partition("=")
        if word.startswith("~"):
            continue
        if not (key and equals):
            form = "is not of the form key=value, for instance learning_rate=1e-5"
            raise ConfigError(f"command-line word {word!r} {form}. Did you mean {_guess(word)}?")
        words[key] = value
    return words


def _guess(word: str) -> str:
    if "help".startswith(word.strip("-") or "h"):
        return "-h or --help"
    return f"config={word}" if word.endswith((".yaml", ".yml")) else f"{word.strip('-=')}=…"


def _leave_out(key: str, content: DictConfig) -> None:
    section, _, name = key.rpartition(".")
    holder = OmegaConf.select(content, section) if section else content
    known = list(map(str, holder)) if isinstance(holder, DictConfig) else []
    if name not in known:
        hint = suggest(name, known)
        raise ConfigError(f"~{key}: the YAML has no {key}, so it cannot be left out.{hint}")
    del holder[name]


def check_word(key: str, value: str) -> None:
    """Raise a `ConfigError` that names the word of the command line that cannot be read."""
    check(value.strip() != "???", key, value, "a value", "Write one, or leave the word out.")
    try:
        OmegaConf.from_dotlist([f"{key}={value}"])
    except (YAMLError, OmegaConfBaseException) as error:
        why = f"{explain_yaml(error)}. Close brackets and quotes, and quote it in the shell."
        raise ConfigError(f"{key}={value[:80]} is not readable as YAML: {why}") from error
