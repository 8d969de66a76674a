"""Errors that end a run, each as one line of what has happened and what to do."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

ADVICE = (
    "Lower per_device_train_batch_size or tasks.<name>.rollout_batch_size, set"
    " model.gradient_checkpointing=true, train an adapter (model.lora) or take more devices;"
    " dry_run=true estimates what is needed."
)
CONNECTION = re.compile(r"gloo|nccl|tcpstore|connection (closed|reset|refused)|broken pipe", re.I)


class DivergenceError(RuntimeError):
    """A loss or gradient that is no longer finite."""


class LostError(RuntimeError):
    """No memory is left on a device, or another process of the run has ended."""


@contextmanager
def explain_losses() -> Iterator[None]:
    """Turn torch's errors of memory and of connections into one line of what to do. Raises
    LostError: with the phase and the sizes where no memory is left."""
    try:
        yield
    except RuntimeError as error:
        import torch  # by what raised, it is imported already

        first = str(error).strip().partition("\n")[0]
        if isinstance(error, torch.OutOfMemoryError):
            phases = " of ".join(f"'{name}'" for name in getattr(error, "phases", ()))
            place = f"in {phases}" if phases else "between two phases"
            sizes = ". ".join(first.split(". ")[:3]).rstrip(".")
            raise LostError(f"no memory is left {place}. {sizes}. {ADVICE}") from error
        if os.environ.get("WORLD_SIZE", "1") != "1" and CONNECTION.search(str(error)):
            raise LostError(
                f"another process of the run has ended or cannot be reached ({first[:160]}). Its"
                " log and the report of the launcher say more; run again with"
                " resume_from_checkpoint=auto."
            ) from error
        raise
