"""Memory that runs out, as one line with the phase, the sizes and what to lower."""

from collections.abc import Iterator
from contextlib import contextmanager

ADVICE = (
    "Lower per_device_train_batch_size or tasks.<name>.rollout_batch_size, set"
    " model.gradient_checkpointing=true, train an adapter (model.lora) or take more devices;"
    " dry_run=true estimates what is needed."
)


class LostMemoryError(RuntimeError):
    """No memory is left on a device."""


@contextmanager
def explain_lost_memory() -> Iterator[None]:
    """Turn torch's error into one line inside the context.

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
