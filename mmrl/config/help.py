"""What `--help` prints: what a command does, its examples, configurations and settings."""

import os
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mmrl.config.checks import suggest
from mmrl.config.setting_docs import Setting, find_setting, held_settings, settings, walk
from mmrl.config.yaml_file import first_line, shipped


class Usage(NamedTuple):
    """What `--help` knows of a command: the words that call it; the docstring of its module, with a
    summary and indented examples; the dataclass of its settings; and the folder of `configs/` with
    its configurations, if there is one."""

    command: str
    text: str | None
    config: type
    folder: str | None = None


def texts(usage: Usage, keys: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield the texts for `--help KEY …`, and whether each key is known."""
    for key in keys:
        text, names = about(usage, key), {_name(row.key): row.key for row in walk(usage.config)}
        unknown = f"no setting has {key!r} in its name.{suggest(_name(key), names)}\n"
        yield text or unknown, text is not None
    if not keys:
        yield overview(usage), True


def overview(usage: Usage) -> str:
    """Write what a command does, an example, its configurations, and its settings."""
    rows, here = settings(usage.config), Path.cwd()
    parts = [(usage.text or "").strip()]
    if usage.folder is not None:
        pairs = [
            (os.path.relpath(path) if here in path.parents else str(path), first_line(path))
            for path in shipped(usage.folder)
        ]
        parts.append(_table("configurations, config=…", pairs))
    parts.append(_settings("settings, key=value or in the YAML", rows))
    if any(row.holds is not None for row in rows):
        more = [("--help SECTION", "shows a section or component")]
        more.append(("--help NAME", "finds settings by a part of their name, in all sections"))
        parts.append(_table("more", more))
    return "\n\n".join(parts) + "\n"


def about(usage: Usage, key: str) -> str | None:
    """Describe a section, or the settings with `key` in their name; None where there are none."""
    here, part = find_setting(usage.config, key), _name(key).lower()
    if here is not None and ("." in key or here.holds is not None):
        found = [here]
    else:
        every = {row.key: row for row in walk(usage.config)}.values()
        found = [row for row in every if part in _name(row.key).lower()]
    if len(found) == 1 and found[0].holds is not None:
        return _section(found[0])
    return "\n".join(line for row in found for line in _row(row)) + "\n" if found else None


def _name(key: str) -> str:
    return key.rpartition(".")[2]


def _section(row: Setting) -> str:
    """Describe a section with its settings, or with the components that its `name` chooses from."""
    rows, presets = held_settings(row), getattr(row.holds, "presets", None)
    parts = ["\n".join(_wrap(f"{row.key}: {row.meaning}".removesuffix(": ")))]
    if isinstance(presets, str):
        parts.append(_table("name=…", [(each.stem, first_line(each)) for each in shipped(presets)]))
    if isinstance(row.holds, Mapping):
        parts.append(_table("name: …", [(each.key, each.meaning) for each in rows]))
        parts.append(f"--help {row.key}.{rows[0].key} shows the options of one.")
    else:
        parts.append(_settings("settings", rows) if rows else "It has no options.")
    return "\n\n".join(parts) + "\n"


def _settings(title: str, rows: Iterable[Setting]) -> str:
    return "\n".join([title, *(f"  {line}" for row in rows for line in _row(row))])


def _row(row: Setting) -> list[str]:
    """A line of key, type and default, with the meaning below it."""
    kind = f"{row.type} = {row.default}" if row.default and row.type != "section" else row.type
    if row.holds is not None and row.many:
        kind = "sections by name"
    elif row.default == "null" and row.type.startswith("section"):
        kind = "section, or null = null"
    head = _wrap(f"{row.key:<27} {kind}", rest=" " * 28) or [row.key]
    return [*head, *_wrap(row.meaning, first=" " * 4, rest=" " * 4)]


def _table(title: str, pairs: Sequence[tuple[str, str]]) -> str:
    """Two columns below a title, the second one wrapped."""
    column = max((len(name) for name, _ in pairs), default=0) + 2
    lines = [
        line
        for name, text in pairs
        for line in _wrap(f"{name:<{column}}{text}", rest=" " * column, least=column + 30)
    ]
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _wrap(text: str, first: str = "", rest: str = "", least: int = 0) -> list[str]:
    """Wrap a text between words, with an indentation of the first line and of the rest."""
    columns = max(min(max(shutil.get_terminal_size((100, 24)).columns, 80), 140) - 2, least)
    wrapper = textwrap.TextWrapper(columns, first, rest, break_on_hyphens=False)
    wrapper.break_long_words = False
    return wrapper.wrap(text)
