"""Configuration in three layers: typed dataclass defaults, a YAML file, a command-line dotlist.

    python -m mmrl.rl config=configs/rl/quickstart.yaml model.lora.r=8 learning_rate=1e-5

OmegaConf merges and type-checks; what comes out are plain dataclass objects. An unknown key, a
wrong type or an impossible value fails here, before any model loads, as a `ConfigError` that names
the key, the value, what is allowed and what to do.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import math
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_origin

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError

from mmrl.config.shipped import configs, find_config
from mmrl.config.written_name import written_name

T = TypeVar("T")
SHOWN = 12
"""Most files that are listed where one is missing."""


class ConfigError(ValueError):
    """A configuration that cannot be run; the message says what to change."""


def installed(module: str, extra: str) -> Any:
    """A module that not everybody installs.

    Args:
        module: its name.
        extra: of this package, which brings it.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise ConfigError(
            f"The package {error.name} is not installed. It comes with the extra {extra}:"
            f" pip install 'mmrl[{extra}]', or in a clone pip install -e '.[{extra}]'."
        ) from error


class NotHereError(ConfigError):
    """Something of the Hugging Face hub that is neither on this machine nor could be fetched."""


def load_config(cls: type[T], arguments: Sequence[str]) -> T:
    """Build a `cls` from its defaults, the YAML named by `config=…` and `key.sub=value` overrides.

    Args:
        cls: a dataclass; nested dataclasses become nested sections.
        arguments: command-line words, each `key=value`, or `~key.sub` for what is in the YAML and
            shall be left out, as in Hydra.

    Raises:
        ConfigError: a word without `=`, a missing or unreadable YAML file, an unknown key, a value
            of the wrong type, or whatever the dataclasses' own checks reject.
    """
    words = _words(arguments)
    path = words.pop("config", None)
    layers = [_read_yaml(path)] if path is not None else []
    for word in arguments:
        if word.startswith("~"):
            _leave_out(word[1:], layers)
    for key, value in words.items():
        _check_word(key, value)
    overrides = [f"{key}={value}" for key, value in words.items()]
    return merge(cls, *layers, OmegaConf.from_dotlist(overrides))


def _check_word(key: str, value: str) -> None:
    """Raise a `ConfigError` that names the word of the command line that cannot be read."""
    check(value.strip() != "???", key, value, "a value", "Write one, or leave the word out.")
    try:
        OmegaConf.from_dotlist([f"{key}={value}"])
    except (YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(
            f"{key}={value[:80]} is not readable as YAML: {_one_line(error)}. Close brackets and"
            " quotes, and quote the whole word in the shell."
        ) from error


def _one_line(error: Exception) -> str:
    """What is wrong with a text, and where, in a line."""
    if isinstance(error, MarkedYAMLError) and error.problem:
        mark = error.problem_mark
        place = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        return f"{error.problem}{place}"
    return " ".join(str(error).split())[:200]


def stated(arguments: Sequence[str], key: str) -> Any:
    """The value that command-line words, or else the YAML they name, give a key of the top level.

    Returns:
        None where neither states it.

    Raises:
        ConfigError: a word without `=`, or a missing or unreadable YAML file.
    """
    words = _words(arguments)
    if key in words or "config" not in words:
        return words.get(key)
    return _read_yaml(words["config"]).get(key)


def merge(cls: type[T], *layers: Any, where: str = "") -> T:
    """A `cls` from its defaults and layers of mappings, later layers winning.

    Args:
        cls: a dataclass.
        layers: mappings or OmegaConf containers.
        where: dotted key of the section, for messages.

    Raises:
        ConfigError: see `load_config`.
    """
    try:
        merged = OmegaConf.structured(cls)
        for layer in layers:
            _check_kinds(merged, layer, where)
            merged = OmegaConf.merge(merged, layer)
        missing = sorted(OmegaConf.missing_keys(merged))
        if missing:
            raise ConfigError(
                f"{_key(where, missing[0])} has no value; set it in the YAML or as key=value."
            )
        built = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise ConfigError(_explain(error, where)) from error
    _check_finite(OmegaConf.to_container(merged), where)
    return built  # type: ignore[return-value]


def _check_finite(content: Any, where: str) -> None:
    """Raise a `ConfigError` for an infinite number or a NaN: no setting means anything with one."""
    if isinstance(content, float):
        check(math.isfinite(content), where, content, "a finite number")
    elif isinstance(content, Mapping):
        for key, value in content.items():
            _check_finite(value, _key(where, str(key)))
    elif isinstance(content, list):
        for n, value in enumerate(content):
            _check_finite(value, f"{where}[{n}]")


def _check_kinds(config: Any, layer: Any, where: str) -> None:
    """Raise a `ConfigError` where a section, a list or a value stands in the place of another kind:
    OmegaConf's error names no key."""
    content = OmegaConf.to_container(layer) if OmegaConf.is_config(layer) else layer
    for key, new in content.items() if isinstance(content, Mapping) else ():
        name = str(key)
        if name not in config:  # of a new entry, such as a task, the type says what it holds
            kind = config._metadata.element_type
            if dataclasses.is_dataclass(kind):
                check(isinstance(new, Mapping), _key(where, name), new, "a section, {key: value}")
                _check_kinds(OmegaConf.structured(kind), new, _key(where, name))
            continue
        if any(ask(config, name) for ask in _UNKNOWN):
            continue
        # what is null still knows its kind
        old, name = config._get_node(name), _key(where, name)
        if new is None or (isinstance(new, str) and "${" in new):
            continue
        if isinstance(old, DictConfig):
            check(isinstance(new, Mapping), name, new, "a section, {key: value}")
            if config[str(key)] is not None:
                _check_kinds(old, new, name)
        elif isinstance(old, ListConfig):
            check(isinstance(new, list), name, new, "a list, [a, b]")
            sections = get_origin(old._metadata.element_type) is dict
            for n, each in enumerate(new if sections else ()):
                check(isinstance(each, Mapping), f"{name}[{n}]", each, "a section, {key: value}")


_UNKNOWN = (OmegaConf.is_missing, OmegaConf.is_interpolation)


def component(registry: Mapping[str, Any], options: Mapping[str, Any], where: str) -> Any:
    """The typed options of a named component, `{name: …, option: …}` checked against its class.

    Args:
        registry: name -> class with a nested `Config` dataclass.
        options: the section of the configuration, with its `name`.
        where: dotted key of the section, for messages.

    Raises:
        ConfigError: the name is missing or unknown, or an option is.
    """
    name = options.get("name")
    check_choice(f"{where}.name", name, registry)
    rest = {key: value for key, value in options.items() if key != "name"}
    return merge(registry[str(name)].Config, OmegaConf.create(rest), where=where)


def check_choice(key: str, value: Any, allowed: Mapping[str, Any] | Sequence[str]) -> None:
    """Raise a `ConfigError` naming the nearest choice unless `value` is one of `allowed`."""
    if isinstance(value, Hashable) and value in allowed:
        return
    hint = _hint(value, {name: name for name in allowed})
    raise ConfigError(f"{key} is {value!r}; allowed: {', '.join(sorted(allowed))}.{hint}")


def _hint(value: Any, allowed: Mapping[str, str]) -> str:
    """The nearest of several words, by what is shown of it; empty where none is near."""
    near = difflib.get_close_matches(str(value), list(allowed), n=1)
    return f" Did you mean {allowed[near[0]]!r}?" if near else ""


def check(holds: bool, key: str, value: Any, allowed: str, advice: str = "") -> None:
    """Raise a `ConfigError` of the standard form unless `holds`."""
    if not holds:
        raise ConfigError(f"{key} is {value!r}; it must be {allowed}. {advice}".rstrip())


def to_yaml(config: Any) -> str:
    """The resolved configuration as YAML text; Python objects as `plain` writes them."""
    return OmegaConf.to_yaml(OmegaConf.create(plain(config)))


def plain(value: Any) -> Any:
    """A configuration as plain containers, numbers and texts; functions and other callables, such
    as a reward, by the name under which `mmrl.config.by_name` finds them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and not callable(value):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if callable(value):
        return written_name(value)
    return value if value is None or isinstance(value, str | int | float) else repr(value)


def _words(arguments: Sequence[str]) -> dict[str, str]:
    return dict(_split(word) for word in arguments if not word.startswith("~"))


def _leave_out(key: str, layers: Sequence[DictConfig]) -> None:
    section, _, name = key.rpartition(".")
    for layer in layers:
        holder = OmegaConf.select(layer, section) if section else layer
        if isinstance(holder, DictConfig) and name in holder:
            del holder[name]
            return
    raise ConfigError(f"~{key}: the YAML has no {key}, so it cannot be left out.")


def _split(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals or not key:
        meant = f"config={word}" if word.endswith((".yaml", ".yml")) else f"{word.strip('-=')}=…"
        hint = "-h or --help" if "help".startswith(word.strip("-") or "h") else meant
        raise ConfigError(
            f"command-line word {word!r} is not of the form key=value,"
            " for instance config=configs/rl/quickstart.yaml or learning_rate=1e-5."
            f" Did you mean {hint}?"
        )
    return key, value


def _read_yaml(path: str) -> Any:
    found = find_config(path)
    if not found.is_file():
        beside = found.suffix == ".yaml" and found.parent.is_dir()
        folder = found.parent if beside else configs()
        here = sorted(_shown(file) for file in folder.glob("**/*.yaml"))
        hint = _hint(found.stem, {Path(name).stem: name for name in here})
        more = f" and {len(here) - SHOWN} more" if len(here) > SHOWN else ""
        names = ", ".join(Path(name).name for name in here[:SHOWN]) or "no YAML files"
        raise ConfigError(
            f"config={path}: there is no such file.{hint} In {_shown(folder)} are {names}{more}."
        )
    try:
        layer = OmegaConf.load(found)
    except (YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
        raise ConfigError(f"config={path} is not readable as YAML: {_one_line(error)}.") from error
    if not OmegaConf.is_dict(layer):
        raise ConfigError(f"config={path} must hold `key: value` lines.")
    return layer


def _shown(file: Path) -> str:
    """A YAML by the path that names it: `configs/…` for what is shipped."""
    folder = configs()
    return str(file.relative_to(folder.parent) if file.is_relative_to(folder) else file)


def _key(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _explain(error: OmegaConfBaseException, where: str) -> str:
    key = _key(where, error.full_key or str(error.key or ""))
    message = str(error.msg or error).splitlines()[0]
    parent = error.object_type
    if parent is not None and dataclasses.is_dataclass(parent) and "not in" in message:
        fields = [f.name for f in dataclasses.fields(parent)]
        named = [*fields, "config"] if key == str(error.key) else fields
        hint = _hint(error.key, {name: name for name in named})
        return f"{key} is not a setting.{hint} Allowed here: {', '.join(fields)}."
    return f"{key or where or 'configuration'}: {message}"
