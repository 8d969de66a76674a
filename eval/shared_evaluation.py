"""An evaluation whose prompts are shared by all processes, with the scores that one would give."""

from __future__ import annotations

from collections.abc import Sequence

from accelerate import Accelerator
from accelerate.utils import gather_object

from eval.evaluation import Evaluation
from mmrl.data.prompts import spread
from mmrl.types import Prompt


def share(count: int, accelerator: Accelerator) -> slice:
    """The stretch of `count` prompts that falls to this process."""
    rank, world_size = accelerator.process_index, accelerator.num_processes
    return slice(count * rank // world_size, count * (rank + 1) // world_size)


def gathered(part: Evaluation, prompts: Sequence[Prompt], mine: slice, pictures: int) -> Evaluation:
    """The evaluation of all prompts from the parts of all processes.

    Args:
        part: of this process's stretch, one completion per prompt.
        prompts: all of them.
        mine: the stretch.
        pictures: how many completions are kept, spread over all; a text stands for the others.
    """
    wanted = set(spread(range(len(prompts)), pictures)) if pictures else set()
    kept = [
        completion if place in wanted else ""
        for place, completion in enumerate(part.completions, start=mine.start)
    ]
    scores = {key: gather_object(values) for key, values in part.scores.items()}
    return Evaluation(list(prompts), gather_object(kept), scores)
