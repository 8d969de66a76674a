"""MkDocs hook: pages and parts of pages that are generated from the code when the site is built.

- `reference/settings/<command>.md`: the settings of each command, from its dataclasses.
- `reference/settings/rewards.md`: the options of each reward, from its constructor.
- `reference/api.md`: the docstrings of the names in `reference/python.md`.
- `tutorial.md`: the notebook, with its outputs.
- `llms.txt` and `llms-full.txt`: the list of the pages, and their text, for language models.
- files of the repository that pages link to, under their own paths.
"""

from __future__ import annotations

import html
import importlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mmrl.config.help import Usage  # noqa: E402
from mmrl.config.setting_docs import Setting, component_summary, options_class, settings  # noqa: E402
from mmrl.rewards import REWARDS  # noqa: E402

OUTSIDE = re.compile(r"(\]\((?:\.\./)*)\.\./((?:configs|datasets)/[^)#]+)")
"""A link from a page to a file outside docs/: what stays of it, and the file."""
NOTEBOOK = "tutorial.ipynb"
TEXTS: dict[str, tuple[str, str]] = {}
"""Address of each page of the site that somebody wrote -> its title and text."""
ELSEWHERE = "https://unpkg.com/iframe-worker/shim"
"""Where the theme would load that script from."""
COMMANDS = {
    "rl": "mmrl.rl",
    "sft": "mmrl.sft",
    "eval": "mmrl.eval",
    "eval_v": "mmrl.eval_v",
    "probe": "mmrl.probe",
    "demo": "mmrl.demo.__main__",
    "server": "mmrl.rewards.server.__main__",
}


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages, and the files outside docs/ that pages link to."""
    from mkdocs.structure.files import File

    tutorial = notebook_page(ROOT / "docs" / NOTEBOOK)
    files.append(File.generated(config, "tutorial.md", content=tutorial))
    pages = [file.content_string for file in files.documentation_pages()]
    for path in sorted({path for page in pages for _, path in OUTSIDE.findall(page)}):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    for name, content in generated_pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links out of docs/ to the files that were added, and those to the notebook to its page;
    keep the text of what is not made from the code."""
    markdown = OUTSIDE.sub(r"\1\2", markdown).replace(NOTEBOOK, "tutorial.md")
    if not page.file.generated_by or page.file.src_uri == "tutorial.md":
        TEXTS[page.url] = (page.title, re.sub(r"!\[.*?\]\(data:.*?\)", "", markdown))
    return markdown


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Load the script that searches without a server from the site, not from elsewhere."""
    from mkdocs.utils import get_relative_url

    return output.replace(ELSEWHERE, get_relative_url("offline_search.js", page.url))


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for pages that are no documents, such as that of a wrong address."""
    return output_content.replace(ELSEWHERE, "offline_search.js")


def on_post_build(config: Any) -> None:
    """Write what language models read; fail where a page would load anything from another
    place."""
    from mkdocs.exceptions import PluginError

    site, head = Path(config["site_dir"]), f"# mmrl\n\n> {config['site_description']}\n\n"
    links = [f"- [{title}]({address})" for address, (title, _) in TEXTS.items()]
    (site / "llms.txt").write_text(head + "\n".join(["## Docs\n", *links, ""]), "utf-8")
    texts = [f"<!-- {address} -->\n\n{text}" for address, (_, text) in TEXTS.items()]
    (site / "llms-full.txt").write_text(head + "\n\n".join(texts), "utf-8")
    loads = re.compile(r'(?:src|<link[^>]*rel="stylesheet"[^>]*href)="https?://[^"]+"')
    for page in sorted(Path(config["site_dir"]).rglob("*.html")):
        if found := loads.search(page.read_text(encoding="utf-8")):
            raise PluginError(f"{page} loads {found[0]}; the site must work without a network.")


def notebook_page(path: Path) -> str:
    """A notebook as a page: its text, its code, and what that printed or drew."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", ()):
            if "text" in output:
                parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
            else:
                parts.append(f"![output](data:image/png;base64,{output['data']['image/png']})")
    return "\n\n".join(parts) + "\n"


def generated_pages() -> dict[str, str]:
    """Name and text of every generated page."""
    pages = {
        f"settings/{name}": command_page(importlib.import_module(module).USAGE)
        for name, module in COMMANDS.items()
    }
    return {**pages, "settings/rewards": rewards_page(), "api": api_page()}


def api_page() -> str:
    """What mkdocstrings fills with the docstring of every name of the Python surface."""
    table = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
    names = re.findall(r"^\| `(mmrl[\w.]+)`", table, re.MULTILINE)
    return "# Docstrings\n\n" + "\n\n".join(f"::: {name}" for name in names) + "\n"


def command_page(usage: Usage) -> str:
    """All settings of a command, a table per section."""
    parts = [
        f"# {usage.command.removeprefix('python -m ')}",
        f"Settings of `{usage.command}`: `key=value` on the command line, or keys of the YAML file."
        f" `{usage.command} --help` prints the same.",
    ]
    parts += ["## Settings", *sections(usage.config, "", set())]
    return "\n\n".join(parts) + "\n"


def rewards_page() -> str:
    """The options of every reward."""
    parts = [
        "# Options of the rewards",
        "Options of each reward, as keys of its entry in `rewards`. `name`, `key`, `weight`,"
        " `scale` and `offset` belong to every entry, see [rewards](../rewards.md).",
    ]
    for name, entry in REWARDS.items():
        rows = settings(options_class(entry))
        parts += [f"## {name}", component_summary(entry), table(rows) if rows else "No options."]
    return "\n\n".join(parts) + "\n"


def sections(cls: Any, key: str, seen: set[int]) -> Iterator[str]:
    """The table of a section, then those of the sections in it."""
    rows = settings(cls)
    yield table(rows) if rows else "No options."
    for row in rows:
        place = f"{key}.{row.key}" if key else row.key
        if row.holds is None or id(row.holds) in seen:
            continue
        seen.add(id(row.holds))
        if row.holds is REWARDS:
            yield f"### `{place}`"
            yield f"{row.meaning} The options of each reward are [on their own page](rewards.md)."
        elif isinstance(row.holds, Mapping):
            for name, entry in row.holds.items():
                yield f"### `{place}`, `name: {name}`"
                yield component_summary(entry)
                yield from sections(options_class(entry), place, seen)
        else:
            place += ".<name>" if row.many else ""
            yield f"### `{place}`"
            yield row.meaning
            yield from sections(options_class(row.holds), place, seen)


def table(rows: list[Setting]) -> str:
    """Key, type with default, and meaning of settings."""
    lines = ["| key | type = default | meaning |", "| --- | --- | --- |"]
    for row in rows:
        kind = "sections by name" if row.holds is not None and row.many else row.type
        if row.default and not kind.startswith("section"):
            kind += f" = {row.default}"
        cells = [code(row.key), code(kind), row.meaning.replace("|", "&#124;")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def code(text: str) -> str:
    """A text as code inside a table."""
    return f"<code>{html.escape(text).replace('|', '&#124;')}</code>" if text else ""
