"""Mappings merged into a dataclass by OmegaConf, with errors that name the key."""

import copy
import dataclasses
import functools
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin

from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from mmrl.config.checks import ConfigError, check, check_choice, shorten, suggest
from mmrl.config.chosen import Chosen, leave_out_unread
from mmrl.config.constraints import bare_type, check_value, field_types, section_types
from mmrl.config.setting_docs import walk

T = TypeVar("T")
_defaults = functools.cache(OmegaConf.structured)
"""The defaults of a dataclass, for copies: building them takes a fifth of a merge."""


def merge(cls: type[T], *layers: Any, where: str = "") -> T:
    """Build a `cls` from its defaults and layers of mappings, later layers winning; `where` is the
    dotted key of the section, for messages. Raises ConfigError: an unknown key, a value of the
    wrong type or none where one is required, or whatever the dataclasses' own checks reject."""
    contents = [_plain(layer) for layer in layers]
    for content in contents:
        _check_kind(cls, content, where)
    try:
        sections = [content for content in contents if isinstance(content, Mapping)]
        merged = OmegaConf.merge(_lay_out(cls, sections, where), *contents)
        if missing := sorted(OmegaConf.missing_keys(merged)):
            key = _key(where, missing[0])
            raise ConfigError(f"{key} has no value; set it in the YAML or as key=value.")
        check_value(cls, OmegaConf.to_container(merged, resolve=True), where)
        return OmegaConf.to_object(merged)  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        raise ConfigError(_explain(error, cls, where)) from error


def build_options(registry: Mapping[str, Any], options: Mapping[str, Any], where: str) -> Any:
    """Build the typed options of a component from `{name: …, option: …}`, the section at the dotted
    key `where`, by a registry of classes with a nested `Config` dataclass. Raises ConfigError: the
    name is missing or unknown, or an option is."""
    name = options.get("name")
    check_choice(f"{where}.name", name, registry)
    rest = {key: value for key, value in options.items() if key != "name"}
    return merge(registry[str(name)].Config, OmegaConf.create(rest), where=where)


def _lay_out(cls: Any, layers: Sequence[Any], where: str) -> DictConfig:
    """The defaults of a section to which layers are to be added, every section in it of the class
    that its content chooses."""
    chosen = cls
    if issubclass(cls, Chosen):
        chosen = cls.choose({k: v for layer in layers for k, v in layer.items()}, where)
        leave_out_unread(cls, chosen, layers, where)
    node = copy.deepcopy(_defaults(chosen))
    for name, hint in field_types(chosen).items():
        items = [layer[name] for layer in layers if isinstance(layer.get(name), Mapping)]
        inner, key = bare_type(hint), _key(where, name)
        if not items:
            continue
        if dataclasses.is_dataclass(inner):
            node[name] = _keep_usual(node._get_node(name), _lay_out(inner, items, key))
        elif get_origin(inner) is dict and dataclasses.is_dataclass(get_args(inner)[1]):
            for each in dict.fromkeys(each for item in items for each in item):
                own = [item[each] for item in items if isinstance(item.get(each), Mapping)]
                node[name][each] = _lay_out(get_args(inner)[1], own, _key(key, str(each)))
    return node


def _keep_usual(held: Any, node: DictConfig) -> DictConfig:
    """A laid out section with the values that the section around it gives it by default."""
    if isinstance(held, DictConfig) and not held._is_none() and not held._is_missing():
        for key in held:
            if key in node and not isinstance(held._get_node(key), DictConfig):
                node[key] = held._get_node(key)
    return node


def _plain(content: Any) -> Any:
    """A layer as plain containers. The home folder at the start of a path, `~/…` or `~user/…`, is
    written out, as by a shell."""
    if OmegaConf.is_config(content):
        content = OmegaConf.to_container(content)
    if isinstance(content, Mapping):
        return {key: _plain(item) for key, item in content.items()}
    if isinstance(content, list | tuple):
        return [_plain(item) for item in content]
    is_home = isinstance(content, str) and re.match(r"~[\w.-]*/", content)
    return os.path.expanduser(content) if is_home else content


def _check_kind(hint: Any, content: Any, key: str) -> None:
    """Raise a `ConfigError` where a layer has a value of another kind (section, list, value) than
    the setting, or another word: OmegaConf's own errors name no key, or no near word."""
    inner = bare_type(hint)
    origin, arguments = get_origin(inner), get_args(inner)
    is_open = isinstance(content, str) and (content == MISSING or "${" in content)
    if content is None or is_open or dataclasses.is_dataclass(content):
        return
    section = content if isinstance(content, Mapping) else {}
    if dataclasses.is_dataclass(inner) or origin is dict:
        check(section is content, key, content, "a section, {key: value}")
        known = section_types(inner) or {}
        for name, item in section.items():
            one = arguments[1] if origin is dict else known.get(name, Any)
            _check_kind(one, item, _key(key, str(name)))
    elif origin is list:
        check(isinstance(content, list), key, content, "a list, [a, b]")
        for n, item in enumerate(content):
            _check_kind(arguments[0], item, f"{key}[{n}]")
    elif origin is Literal:
        check_choice(key, content, arguments)


def _key(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _explain(error: OmegaConfBaseException, cls: type, where: str) -> str:
    key = shorten(_key(where, error.full_key or str(error.key or "")))
    parent = error.object_type
    message = shorten(str(error.msg or error).splitlines()[0])
    if parent is None or not dataclasses.is_dataclass(parent) or "not in" not in message:
        return f"{key or where or 'configuration'}: {message}"
    fields = [field.name for field in dataclasses.fields(parent)]
    rows = reversed([*walk(cls, components=False)])  # of one name the outermost is meant
    places = {row.key.rpartition(".")[2]: _key(where, row.key) for row in rows}
    here = [*fields, "config"] if key == str(error.key) else fields
    known = getattr(parent, "other_names", {}).get(error.key)
    names = {**places, **{name: name for name in here}}
    hint = suggest(error.key, names) if known is None else f" {known}."
    return f"{key} is not a setting.{hint} Allowed here: {', '.join(fields)}."
