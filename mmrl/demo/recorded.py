"""A text that a run recorded, as a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmrl.config import ConfigError, check
from mmrl.demo.run_files import find_completions, read_completions, read_settings
from mmrl.demo.traces import MOST_POSITIONS, MOST_STEPS, Trace, token_texts
from mmrl.run.checkpoint import model_folders
from mmrl.run.metrics_file import is_number

COLUMNS = ("tokens", "written_at", "logprobs")


def open_rollout(run: Path, name: str, row: int) -> tuple[str, Trace]:
    """Prompt with reward and advantage, and the trace, of one recorded completion.

    Args:
        run: directory of the run.
        name: of the file, see `find_completions`.
        row: in the file, from 0.

    Raises:
        ConfigError: no such file or row, an image, or a row that does not say how it was written.
    """
    files = find_completions(run)
    check(name in files, "completions", name, "one of the list")
    rows = read_completions(files[name])
    check(0 <= row < len(rows), "row", row, f"from 0 to {len(rows) - 1}")
    found = rows[row]
    if not isinstance(found["completion"], str):
        raise ConfigError("this completion is an image; the tab draw shows images step by step.")
    scores = ", ".join(
        f"{key} {found[key]:.3f}" for key in ("reward", "advantage") if is_number(found.get(key))
    )
    return f"{found['prompt']} ({scores})", recorded_trace(found, _tokenizer(run))


def recorded_trace(row: Mapping[str, Any], tokenizer: Any) -> Trace:
    """The trace of a row of completions of a text.

    Args:
        row: see `mmrl.training.completions`.
        tokenizer: of the policy.

    Raises:
        ConfigError: the row does not say how it was written, or says it wrong.
    """
    tokens, steps, logprobs = (_numbers(row.get(key), key) for key in COLUMNS)
    if not len(tokens) == len(steps) == len(logprobs) <= MOST_POSITIONS:
        raise ConfigError("tokens, written_at and logprobs of this completion differ in length.")
    written = [int(step) for step in steps]
    if not all(0 <= step < MOST_STEPS for step in written):
        raise ConfigError(f"written_at of this completion goes beyond {MOST_STEPS} steps.")
    if not all(0 <= token < len(tokenizer) for token in tokens):
        raise ConfigError("tokens of this completion are not those of the run's tokenizer.")
    texts = token_texts(tokenizer, [int(token) for token in tokens])
    values = [float(value) for value in logprobs]
    count = 1 + max(written, default=0)
    return Trace(row["completion"], written, values, texts, count, blocks=_blocks(row, len(texts)))


def _blocks(row: Mapping[str, Any], length: int) -> tuple[int, ...]:
    """The block of each position; empty where there is one."""
    if row.get("blocks") is None:
        return ()
    blocks = _numbers(row["blocks"], "blocks")
    if len(blocks) != length:
        raise ConfigError("blocks and tokens of this completion differ in length.")
    return tuple(int(block) for block in blocks)


def _numbers(value: Any, key: str) -> Sequence[float]:
    if not isinstance(value, list) or not all(is_number(item) for item in value):
        raise ConfigError(
            f"this file has no column {key} of numbers: it was written before runs recorded it."
        )
    return value


def _tokenizer(run: Path) -> Any:
    """The tokenizer of the run's last model, or else of the one it started from."""
    from mmrl.models.policy import load_tokenizer

    model = read_settings(run).get("model")
    start = model.get("path") if isinstance(model, dict) else None
    for place in (*model_folders(run), Path(str(start))):
        if place.is_dir():
            return load_tokenizer(place)
    raise ConfigError(f"'{run}' has no model whose tokenizer could be read.")
