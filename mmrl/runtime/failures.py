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


class LostMemoryError(RuntimeError):
    """No memory is left on a device."""


class PeerLostError(RuntimeError):
    """Another process of the run has ended."""


@contextmanager
def explain_lost_memory() -> Iterator[None]:
    """Turn torch's error into one line with the phase, the sizes and what to lower.

    Raises:
        LostMemoryError: no memory is left on a device.
    """
    try:
        yield
    except RuntimeError as error:
        import torch  # by what raised, it is imported already

        if not isinstance(error, torch.OutOfMemoryError):
            raise
        phases = " of ".join(f"'{name}'" for name in getattr(error, "phases", ()))
        place = f"in {phases}" if phases else "between two phases"
        sizes = ". ".join(str(error).splitlines()[0].split(". ")[:3]).rstrip(".")
        raise LostMemoryError(f"no memory is left {place}. {sizes}. {ADVICE}") from error


@contextmanager
def explain_lost_peers() -> Iterator[None]:
    """Turn the error of a broken connection to another process into a readable one.

    Raises:
        PeerLostError: another process has ended.
    """
    try:
        yield
    except RuntimeError as error:
        if os.environ.get("WORLD_SIZE", "1") == "1" or not CONNECTION.search(str(error)):
            raise
        raise PeerLostError(
            "another process of the run has ended or cannot be reached"
            f" ({str(error).strip().splitlines()[0][:160]}). Its log and the report of the"
            " launcher say more; run again with resume_from_checkpoint=auto."
        ) from error
