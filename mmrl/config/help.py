"""What `--help` prints: what a command does, its examples, configurations and settings."""

import difflib
import os
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mmrl.config.setting_docs import Setting, component_summary, options_class, settings, walk
from mmrl.config.shipped import first_line, shipped


class Usage(NamedTuple):
    """What `--help` knows of a command.

    `command`: the words that call it. `text`: docstring of its module, with a summary and indented
    examples. `config`: the dataclass of its settings. `folder`: of `configs/` with its
    configurations, None without.
    """

    command: str
    text: str | None
    config: type
    folder: str | None = None


def overview(usage: Usage) -> str:
    """Write what a command does, an example, its configurations, and its settings."""
    rows = settings(usage.config)
    parts = [(usage.text or "").strip()]
    if usage.folder is not None:
        parts.append(_titled("configurations, config=…", _configurations(usage.folder)))
    parts.append(
        _titled("settings, key=value or in the YAML", [line for row in rows for line in _row(row)])
    )
    if sections := [row.key for row in rows if row.holds is not None]:
        more = [(f"--help {key}", "shows that section") for key in sections]
        more.append(("--help NAME", "finds settings by a part of their name, in all sections"))
        parts.append(_titled("more", _table(more)))
    return "\n\n".join(parts) + "\n"


def about(usage: Usage, key: str) -> str | None:
    """Describe a section, or the settings with `key` in their name; None where there are none."""
    here, part = _at(settings(usage.config), key), key.rpartition(".")[2].lower()
    if here is not None and ("." in key or here.holds is not None):
        found = [here]
    else:
        every = {row.key: row for row in walk(usage.config)}.values()
        found = [row for row in every if part in row.key.rpartition(".")[2].lower()]
    if len(found) == 1 and found[0].holds is not None:
        return _section(found[0])
    return "\n".join(line for row in found for line in _row(row)) + "\n" if found else None


def nearest(usage: Usage, key: str) -> list[str]:
    """Find keys that resemble an unknown one."""
    every = [row.key for row in walk(usage.config)]
    names = {name.rpartition(".")[2]: name for name in every}
    near = difflib.get_close_matches(key.rpartition(".")[2], names, n=3)
    return [names[name] for name in near]


def commands(root: Path) -> str:
    """List the commands with their summaries, read from the source: nothing is imported.

    Args:
        root: folder of the packages; of a checkout, scripts and generators are listed too.
    """
    patterns = ("mmrl/*.py", "mmrl/*/__main__.py", "mmrl/*/*/__main__.py")
    modules = (path for pattern in patterns for path in root.glob(pattern))
    scripts = [
        path.relative_to(root)
        for pattern in ("scripts/*.py", "scripts/bench/*.py", "datasets/*/*.py")
        for path in sorted(root.glob(pattern))
        if _runs(path)
    ]
    named = {
        f"python -m {'.'.join(path.relative_to(root).with_suffix('').parts)}": path
        for path in sorted(modules)
        if _runs(path) and path != root / "mmrl" / "__main__.py"
    }
    lines = _table((k.removesuffix(".__main__"), _first(path)) for k, path in named.items())
    parts = [_titled("commands, each with --help", lines)]
    if scripts:
        rows = _table((f"python {path.as_posix()}", _first(root / path)) for path in scripts)
        parts.append(_titled("scripts, each with --help", rows))
    return "\n\n".join(parts) + "\n"


def _runs(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return re.search(r'^if __name__ == "__main__"', text, re.MULTILINE) is not None


def _first(path: Path) -> str:
    """The summary of a file's docstring."""
    found = re.match(r'\s*(?:#.*\n)*"""(.+?)(?:\n\n|""")', path.read_text(encoding="utf-8"), re.S)
    return " ".join(found[1].split()) if found else ""


def _at(rows: Sequence[Setting], key: str) -> Setting | None:
    """Find the setting of a dotted key; names of a user's sections may be left out.

    `tasks.sampler`, `tasks.shapes.sampler`, `tasks.shapes.rewards[0].clip`
    """
    found, named = None, False
    for name in re.sub(r"\[\d+\]", "", key).split("."):
        row = _named(rows, name) if found is None else _child(found, name)
        if row is None and found is not None and found.many and not named:
            named = True
            continue
        if row is None:
            return None
        place = f"{found.key}.{row.key}" if found is not None else row.key
        found, named = row._replace(key=place), False
    return found


def _named(rows: Sequence[Setting], name: str) -> Setting | None:
    return next((row for row in rows if row.key == name), None)


def _child(row: Setting, name: str) -> Setting | None:
    """The entry of a section by its name; no other component is imported."""
    if isinstance(row.holds, Mapping):
        return _component(name, row.holds[name]) if name in row.holds else None
    return _named(_below(row), name)


def _component(name: str, entry: Any) -> Setting:
    return Setting(name, "section", "", component_summary(entry), options_class(entry))


def _below(row: Setting) -> list[Setting]:
    if isinstance(row.holds, Mapping):
        return [_component(name, entry) for name, entry in row.holds.items()]
    return [] if row.holds is None else settings(row.holds)


def _section(row: Setting) -> str:
    """Describe a section with its settings, or with the components that its `name` chooses from."""
    rows = _below(row)
    head = f"{row.key}: {row.meaning}" if row.meaning else row.key
    parts = ["\n".join(wrap(head, _width()))]
    folder = getattr(row.holds, "presets", None)
    if isinstance(folder, str):
        parts.append(_titled("name=…", _table((p.stem, first_line(p)) for p in shipped(folder))))
    if isinstance(row.holds, Mapping):
        parts.append(_titled("name: …", _table((each.key, each.meaning) for each in rows)))
        parts.append(f"--help {row.key}.{rows[0].key} shows the options of one.")
    elif rows:
        lines = [line for each in rows for line in _row(each)]
        parts.append(_titled("settings", lines))
    else:
        parts.append("It has no options.")
    return "\n\n".join(parts) + "\n"


def _row(row: Setting) -> list[str]:
    """A line of key, type and default, with the meaning below it."""
    kind = f"{row.type} = {row.default}" if row.default and row.type != "section" else row.type
    if row.holds is not None and row.many:
        kind = "sections by name"
    elif row.default == "null" and row.type.startswith("section"):
        kind = "section, or null = null"
    width = _width()
    head = wrap(f"{row.key:<27} {kind}", width, rest=" " * 28) or [row.key]
    return [*head, *wrap(row.meaning, width, first=" " * 4, rest=" " * 4)]


def _configurations(folder: str) -> list[str]:
    """The shipped YAML files, with relative paths where they are below the working directory."""
    here = Path.cwd()
    return _table(
        (os.path.relpath(path) if here in path.parents else str(path), first_line(path))
        for path in shipped(folder)
    )


def _table(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Two columns, the second one wrapped."""
    rows = list(pairs)
    column = max((len(name) for name, _ in rows), default=0) + 2
    width = max(_width(), column + 30)
    return [
        line
        for name, text in rows
        for line in wrap(f"{name:<{column}}{text}", width, rest=" " * column)
    ]


def wrap(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Wrap a text between words, with an indentation of the first line and of the rest."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _titled(title: str, lines: Iterable[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _width() -> int:
    """Columns of a line, without the indentation of two."""
    return min(max(shutil.get_terminal_size((100, 24)).columns, 80), 140) - 2


def texts(usage: Usage, keys: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield the texts for `--help KEY …`, and whether each key is known."""
    for key in keys:
        text = about(usage, key)
        if text is not None:
            yield text, True
            continue
        near = nearest(usage, key)
        hint = f"Did you mean {' or '.join(near)}? " if near else ""
        advice = f"{hint}{usage.command} --help lists all."
        yield f"no setting has {key!r} in its name. {advice}\n", False
    if not keys:
        yield overview(usage), True
