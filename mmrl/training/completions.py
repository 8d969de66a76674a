"""Completions with their scores: a parquet file per task and step.

Columns are as in TRL: step, prompt, completion, one per reward, reward, advantage; and `id`, which
distinguishes prompts of equal text. Under `image` edits have their source, and other prompts with
images the first of these, at most `LARGEST_SHOWN` pixels wide and high. An image is stored as
Hugging Face's image feature does, `{bytes, path}`; a video likewise, as an animated WebP. How a
completion was written is in `tokens`, `trace` and `logprobs`, lists over its positions; for images
in `grid`, their height and width in tokens; where responses are written block by block in `blocks`.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate.utils import gather_object

from mmrl.data.prompts import spread
from mmrl.rollouts.held_out import Evaluation
from mmrl.rollouts.held_out_grid import source_image
from mmrl.rollouts.rollout import RolloutBatch
from mmrl.run.run_directory import RunDirectory
from mmrl.run.sample_files import HELD_OUT, ROLLOUTS, sample_file
from mmrl.types import Completion, Prompt, Rollout, Video

if TYPE_CHECKING:
    from torch import Tensor

LARGEST_SHOWN = 256
"""Side of the image of a question, in pixels; the prompt file has it as it is."""


def write_completions(run: RunDirectory, task: str, step: int, batch: RolloutBatch) -> None:
    """Write the rollouts of all processes to `samples/completions_<task>_<step>.parquet`."""
    blocks = batch.rollout.blocks
    rows = [
        {
            **_written(step, batch.prompts[i], batch.completions[i]),
            **_trace(batch.rollout, i, blocks),
            **{key: scores[i] for key, scores in batch.scores.items()},
            "reward": float(batch.rewards[i]),
            "advantage": float(batch.advantages[i]),
        }
        for i in range(len(batch))
    ]
    rows = gather_object(rows)
    if run.is_main:
        _write_table(rows, sample_file(run.path, ROLLOUTS, task, step))


def write_evaluation(
    run: RunDirectory, task: str, step: int, result: Evaluation, count: int
) -> None:
    """Write completions of an evaluation to `samples/eval_<task>_<step>.parquet`, on the main
    process: at most `count`, spread over the held-out prompts, with the columns of rollouts that
    an evaluation has."""
    rows = [
        {
            **_written(step, result.prompts[n], result.completions[n]),
            **{key: scores[n] for key, scores in result.scores.items()},
        }
        for n in (spread(range(len(result.prompts)), count) if count > 0 else ())
    ]
    if rows:
        _write_table(rows, sample_file(run.path, HELD_OUT, task, step))


def _write_table(rows: list[dict[str, Any]], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = dict.fromkeys(key for row in rows for key in row)
    pq.write_table(pa.table({key: [row.get(key) for row in rows] for key in columns}), path)


def _trace(rollout: Rollout, i: int, blocks: Tensor | None) -> dict[str, Any]:
    """How row `i` was written, at its positions that count."""
    canvas = rollout.canvas
    known = {
        "trace": rollout.trace,
        "logprobs": rollout.logprobs,
        **({} if blocks is None else {"blocks": blocks}),
    }
    written = {name: each[i][canvas.counted[i]].tolist() for name, each in known.items()}
    return {**canvas.describe(i), **written}


def _written(step: int, prompt: Prompt, completion: Completion) -> dict[str, Any]:
    """The columns of every completion, with the image that its prompt is shown with."""
    source = source_image(prompt)
    if source is None and prompt.images:
        source = prompt.images[0].copy()
        source.thumbnail((LARGEST_SHOWN, LARGEST_SHOWN))
    image = {} if source is None else {"image": _stored(source)}
    shown = {"step": step, "id": prompt.id, "prompt": prompt.text, **image}
    return {**shown, "completion": _stored(completion)}


def _stored(completion: Completion) -> Any:
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Video):
        return {"bytes": completion.clip(), "path": None}
    buffer = io.BytesIO()
    completion.save(buffer, format="PNG")
    return {"bytes": buffer.getvalue(), "path": None}
