"""Diversity: how different the completions of one prompt are.

    diversity: [tokens, shapes]

A metric describes every completion and compares two descriptions. Its values are means over the
pairs of a prompt's completions, so their expectation does not depend on the size of a group:

    D = 2 / (G (G - 1)) · Σ_{i<j} d(i, j)

To add one, write a file with a class that has what `DiversityMetric` asks for, and one line here.
"""

import importlib
from collections.abc import Sequence

from mmrl.config import check, check_choice
from mmrl.models.task_names import writes_images
from mmrl.rollouts.diversity.metrics import DiversityMetric

DIVERSITY = {
    "shapes": "mmrl.rollouts.diversity.shapes:ShapesDiversity",
    "text": "mmrl.rollouts.diversity.metrics:TextDiversity",
    "tokens": "mmrl.rollouts.diversity.metrics:TokenDiversity",
}


def build_metrics(names: Sequence[str]) -> list[DiversityMetric]:
    """The metrics of checked names."""
    paths = (DIVERSITY[name].split(":") for name in names)
    return [getattr(importlib.import_module(module), cls)() for module, cls in paths]


def check_metrics(names: Sequence[str], task: str, key: str) -> None:
    """Check the metrics of a task.

    Args:
        names: of the metrics.
        task: layout of the prompts.
        key: dotted key of the names, for messages.

    Raises:
        ConfigError: an unknown name, a metric that cannot read the completions of the task, or one
            that is named twice.
    """
    kind = "images" if writes_images(task) else "texts"
    fits = [n for n in DIVERSITY if build_metrics([n])[0].reads in (kind, "both")]
    for name in names:
        check_choice(key, name, DIVERSITY)
        check(name in fits, key, name, f"of {', '.join(fits)}", f"The task {task} makes {kind}.")
        check(list(names).count(name) == 1, key, name, "named once")


def name_values(names: Sequence[str]) -> list[str]:
    """What the metrics of checked names measure, by name."""
    return [value for metric in build_metrics(names) for value in metric.values]
