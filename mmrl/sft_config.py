"""Settings of `python -m mmrl.sft`."""

from dataclasses import dataclass, field
from math import ceil
from typing import Annotated, Any, Literal

from mmrl.config import above, at_least, check
from mmrl.objectives import find_objective
from mmrl.run_config import RunConfig, check_merge, check_schedule


@dataclass(kw_only=True)
class SFTConfig(RunConfig):
    """Settings of `python -m mmrl.sft`, named as in transformers and TRL."""

    output_dir: str = "runs/sft"
    objective: dict[str, Any] = field(
        default_factory=dict, metadata={"holds": "mmrl.objectives:OBJECTIVES"}
    )
    """`name` and options; one of your own is named `path/to/file.py:NAME` or `module:NAME`."""
    max_steps: int = 1000
    """Optimiser steps of the whole run."""
    num_train_epochs: Annotated[float | None, above(0)] = None
    """Passes over the data in place of `max_steps`, which follows from them, unless null."""
    per_device_train_batch_size: Annotated[int, at_least(1)] = 32
    """Examples per device and micro-batch."""
    gradient_accumulation_steps: Annotated[int, at_least(1)] = 1
    """Micro-batches per optimiser step."""
    optimizer: Literal["adamw", "adamw_8bit", "muon", "sgd"] = "adamw"
    """`muon` trains matrices of blocks with Muon and everything else with AdamW; `sgd` is plain
    gradient descent with momentum; `adamw_8bit` is that of bitsandbytes, whose moments have 8 bits
    (of embeddings 32)."""
    learning_rate: float = 1e-4
    lr_scheduler_type: str = "cosine"
    ema_decay: Annotated[float, at_least(0, below=1)] = 0.0
    """Decay of an average of the weights, which is what is saved and evaluated; 0 is off."""
    logging_steps: int = 10
    save_steps: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective:
            check_merge(self, find_objective(self.objective)[1])
        check_schedule(self, self.max_steps)


def count_steps(config: SFTConfig, examples: int | None, world_size: int) -> int:
    """Optimiser steps of a run, the last of which may begin another pass over the data, of so many
    examples or None where that is not known. Raises ConfigError: epochs of data whose length is not
    known."""
    epochs = config.num_train_epochs
    if epochs is None:
        return config.max_steps
    allowed = "null for streamed data and objectives without a number of examples"
    check(examples is not None, "num_train_epochs", epochs, allowed, "Set max_steps.")
    size = config.per_device_train_batch_size * config.gradient_accumulation_steps * world_size
    return max(1, ceil(epochs * (examples or 0) / size))
