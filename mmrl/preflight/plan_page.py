"""What a dry run prints: a plan on one screen, and why the run would be refused."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mmrl.config import ConfigError, to_yaml
from mmrl.run.settings_changed import list_changed

LINES, WIDTH, NAMES, SHORT = 45, 120, 12, 36
"""Lines of a page and characters of a line, of the name before it, and of the value of a
setting."""
SAID = re.compile(
    r"output_dir|max_steps|(eval|save|warmup)_steps|learning_rate|lr_scheduler_type|optimizer|seed"
    r"|dry_run|devices|launch_config|(model|tasks\.[^.]*)\.(path|vq|dtype|task|num_\w+|(eval_)?rewards"
    r"|sampler\.(name|steps|cfg_scale)|algorithm\.(beta|num_\w+))|rewards|weight_decay"
)
"""Settings that other rows name."""
ELSEWHERE = ", not on this machine: loaded from the hub"


@dataclass
class Plan:
    """What a run would do.

    Attributes:
        config: its settings, with `verbose`.
        rows: name and text; one without a name belongs to the row above it.
        details: lines that `verbose` adds.
        refused: why the run would be refused.
    """

    config: Any
    rows: list[tuple[str, str]] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def add(self, name: str, *texts: str) -> None:
        """Add a row of some lines."""
        self.rows += [("" if n else name, text) for n, text in enumerate(texts)]

    def refuse(self, *reasons: str) -> None:
        """Add reasons for which the run would be refused; an empty one is none."""
        self.refused += filter(None, reasons)

    def check(self) -> None:
        """Raise a ConfigError where the run would be refused."""
        if self.refused:
            raise ConfigError("\n".join(self.refused))

    def __str__(self) -> str:
        lines = ["plan", *(line for row in self.rows for line in _wrap(*row))]
        if self.config.verbose:
            lines += [*self.details, "settings", to_yaml(self.config).rstrip()]
            return "\n".join(lines) + "\n"
        lines += ["settings that differ from their defaults; all of them: verbose=true"]
        settings = [line for row in _sections(self.config) for line in _wrap(*row)]
        left = max(1, LINES - len(lines))
        if len(settings) > left:
            settings[left - 1 :] = [f"  … and {len(settings) - left + 1} more lines"]
        return "\n".join([*lines, *settings]) + "\n"


def _sections(config: Any) -> Iterator[tuple[str, str]]:
    """The settings that differ from their defaults, by section."""
    sections: dict[str, list[str]] = {}
    for key, value in list_changed(config).items():
        if SAID.fullmatch(key):
            continue
        parts = key.split(".")
        depth = 2 if parts[0] == "tasks" else len(parts) > 1
        section, name = ".".join(parts[:depth]), ".".join(parts[depth:])
        sections.setdefault(section, []).append(f"{name}={_short(value)}")
    yield from ((section, ", ".join(each)) for section, each in sorted(sections.items()))


def _short(value: Any) -> str:
    """A value as the command line has it, on one line, long ones cut."""
    words = {None: "null", True: "true", False: "false"}
    text = f"{value:g}" if isinstance(value, float) else str(value)
    text = words[value] if value is None or isinstance(value, bool) else " ".join(text.split())
    return text if len(text) <= SHORT else f"{text[: SHORT - 1]}…"


def _wrap(name: str, text: str) -> list[str]:
    head = f"  {name:<{NAMES - 1}} "
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=head,
        subsequent_indent=" " * (NAMES + 2),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [head.rstrip()]


def cut(text: str, length: int = 2 * WIDTH) -> str:
    """A text of at most that many characters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def format_size(size: float) -> str:
    """A number of bytes in MiB or GiB."""
    unit, power = ("GiB", 30) if size >= 2**29 else ("MiB", 20)
    return f"{size / 2**power:.2f} {unit}"
