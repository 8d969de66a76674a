"""Mappings merged into a dataclass by OmegaConf, with errors that name the key."""

import dataclasses
import functools
import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, get_origin

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mmrl.config.checks import ConfigError, check, check_choice, shorten, suggest
from mmrl.config.setting_docs import settings

T = TypeVar("T")


def merge(cls: type[T], *layers: Any, where: str = "") -> T:
    """Build a `cls` from its defaults and layers of mappings, later layers winning.

    Args:
        cls: a dataclass.
        layers: mappings or OmegaConf containers.
        where: dotted key of the section, for messages.

    Raises:
        ConfigError: an unknown key, a value of the wrong type or none where one is required, or
            whatever the dataclasses' own checks reject.
    """
    try:
        merged = _defaults(cls)
        for layer in layers or ({},):
            _check_kinds(merged, layer, where)
            merged = OmegaConf.merge(merged, layer)
        _expand_homes(merged)
        missing = sorted(OmegaConf.missing_keys(merged))
        if missing:
            raise ConfigError(
                f"{_key(where, missing[0])} has no value; set it in the YAML or as key=value."
            )
        built = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise ConfigError(_explain(error, cls, where)) from error
    _check_finite(OmegaConf.to_container(merged), where)
    return built  # type: ignore[return-value]


def build_options(registry: Mapping[str, Any], options: Mapping[str, Any], where: str) -> Any:
    """Build the typed options of a component from `{name: …, option: …}`.

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


@functools.cache
def _defaults(cls: type) -> DictConfig:
    """The defaults of a dataclass, for copies: building them takes a fifth of a merge."""
    return OmegaConf.structured(cls)


def _expand_homes(config: Any) -> None:
    """Write out the home folder at the start of every path, `~/…` or `~user/…`, as a shell does."""
    for key in range(len(config)) if isinstance(config, ListConfig) else list(config):
        node: Any = config._get_node(key)
        if isinstance(node, DictConfig | ListConfig):
            if not (node._is_none() or node._is_missing() or node._is_interpolation()):
                _expand_homes(node)
        elif isinstance(value := node._value(), str) and re.match(r"~[\w.-]*/", value):
            config[key] = os.path.expanduser(value)


def _check_finite(content: Any, where: str) -> None:
    """Raise a `ConfigError` for an infinite number or a NaN, which no setting can use."""
    if isinstance(content, float):
        check(math.isfinite(content), where, content, "a finite number")
    elif isinstance(content, Mapping):
        for key, value in content.items():
            _check_finite(value, _key(where, str(key)))
    elif isinstance(content, list):
        for n, value in enumerate(content):
            _check_finite(value, f"{where}[{n}]")


def _check_kinds(config: Any, layer: Any, where: str) -> None:
    """Raise a `ConfigError` where a layer has a value of another kind (section, list, value) than
    the setting: OmegaConf's own error names no key."""
    content = OmegaConf.to_container(layer) if OmegaConf.is_config(layer) else layer
    for key, new in content.items() if isinstance(content, Mapping) else ():
        name = str(key)
        if name not in config:  # a new entry, such as a task
            kind = config._metadata.element_type
            if dataclasses.is_dataclass(kind):
                check(isinstance(new, Mapping), _key(where, name), new, "a section, {key: value}")
                _check_kinds(_defaults(kind), new, _key(where, name))
            continue
        if OmegaConf.is_missing(config, name) or OmegaConf.is_interpolation(config, name):
            continue
        # the node of a null still has its kind
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


def _key(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _explain(error: OmegaConfBaseException, cls: type, where: str) -> str:
    key = shorten(_key(where, error.full_key or str(error.key or "")))
    message = shorten(str(error.msg or error).splitlines()[0])
    parent = error.object_type
    if parent is not None and dataclasses.is_dataclass(parent) and "not in" in message:
        fields = [f.name for f in dataclasses.fields(parent)]
        here = {name: name for name in (*fields, *(["config"] if key == str(error.key) else ()))}
        hint = suggest(error.key, {**dict(_places(cls, where)), **here})
        return f"{key} is not a setting.{hint} Allowed here: {', '.join(fields)}."
    return f"{key or where or 'configuration'}: {message}"


def _places(cls: Any, where: str) -> Iterator[tuple[str, str]]:
    """The name and the dotted key of every setting below a dataclass, without those of components;
    the outermost ones last."""
    rows = settings(cls)
    for row in rows:
        if isinstance(row.holds, type):
            place = _key(where, row.key)
            yield from _places(row.holds, f"{place}.<name>" if row.many else place)
    yield from ((row.key, _key(where, row.key)) for row in rows)
