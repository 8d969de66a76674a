"""The results that are kept, as one page: a table per benchmark, a row for each line.

    python scripts/bench/tables.py folder=scripts/bench/results

Writes README.md into the folder, from its `<bench>.jsonl`. To keep a result, copy its line there
from `runs/bench` and run this again.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mmrl.config import check, load_config  # noqa: E402
from mmrl.config.command import Usage, run_command  # noqa: E402

COLUMNS = {
    "step": (
        "task",
        "way",
        "config.clock",
        "config.length",
        "config.text_steps",
        "step_s",
        "tokens_per_s.rollout",
        "tokens_per_s.update",
        "mfu.rollout",
        "mfu.scoring",
        "mfu.update",
        "machine_tflop_per_s.rollout",
        "ratio.rollout",
        "ratio.update",
        "rollouts_per_rollout_s_ratio",
        "peak_mb",
        "same_tokens",
    ),
    "rollout": ("config.mask_policy", "tokens_per_s.ours", "ratio", "peak_share", "same_canvases"),
    "update": ("config.mask_policy", "tokens_per_s.ours", "ratio", "peak_share", "loss_difference"),
    "killed_runs": (
        "way",
        "config.steps",
        "kills",
        "interrupted_writes",
        "every_step_once",
        "same_metrics",
        "same_weights",
    ),
    "text_sampling": (
        "config.prompt_length",
        "config.length",
        "config.steps",
        "config.temperature",
        "cache",
        "window",
        "tokens_per_s",
        "ratio",
        "same_tokens",
    ),
}
"""Keys that are shown, with dots between those of nested objects; of other benchmarks all that
hold a number or a word."""
AROUND = ("bench", "commit", "hardware", "cpu", "versions", "config")
HEAD = """# Results of the benchmarks

Each row is a line of the file beside this page, which has all settings and numbers. A commit that
ends with `-dirty` had changes that were not committed. Written by `scripts/bench/tables.py`.
"""


@dataclass(kw_only=True)
class Config:
    """Where the results are."""

    folder: str = "scripts/bench/results"
    """Folder of the files, and of the page."""

    def __post_init__(self) -> None:
        check(Path(self.folder).is_dir(), "folder", self.folder, "a folder")


USAGE = Usage("python scripts/bench/tables.py", __doc__, Config)


def page(folder: Path) -> str:
    """The page of a folder of results."""
    parts = (text for path in sorted(folder.glob("*.jsonl")) for text in part(path))
    return "\n".join([HEAD, *parts])


def part(path: Path) -> Iterator[str]:
    """Heading and table of a file."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    names = COLUMNS.get(path.stem) or tuple(k for k in lines[0] if k not in AROUND)
    names = tuple(name for name in names if any(find(line, name) is not None for line in lines))
    yield f"## {path.stem}\n"
    head = ["commit", "machine", "torch", *(name.removeprefix("config.") for name in names)]
    rows = [head, ["---"] * len(head), *(row(line, names) for line in lines)]
    yield "\n".join(f"| {' | '.join(cells)} |" for cells in rows) + "\n"


def row(line: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    """The cells of a line."""
    machine = f"{line['hardware']}, {line['cpu']}" if "cpu" in line else line["hardware"]
    values = (find(line, name) for name in names)
    return [
        line["commit"],
        machine,
        line["versions"]["torch"],
        *("" if value is None else f"{value}" for value in values),
    ]


def find(line: dict[str, Any], name: str) -> Any:
    """The value at a key with dots, None where there is none or it is no number or word."""
    value: Any = line
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return None if isinstance(value, dict | list) else value


def write(config: Config) -> None:
    """Write the page, and say where."""
    path = Path(config.folder) / "README.md"
    path.write_text(page(path.parent))
    print(path)


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(run_command(USAGE, words, lambda: write(load_config(Config, words))))
