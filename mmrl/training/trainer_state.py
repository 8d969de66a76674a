"""What an RL checkpoint holds beside the model: trained tensors, optimiser, open metrics, step.

A value model writes itself, see `mmrl.training.value_model`; its moments are in the one optimiser.

Draws need no state: every generator is named by the seed and the step. The reference policy needs
none either: it is the checkpoint that the run started from.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mmrl.config import ConfigError
from mmrl.run.checkpoint import verify_checksums
from mmrl.run.settings_changed import check_unchanged, dump_settings
from mmrl.runtime.precision import warn_of_change
from mmrl.runtime.sharding import assign, load_moments, whole

if TYPE_CHECKING:
    from mmrl.training.supervised_trainer import SupervisedTrainer
    from mmrl.training.trainer import Trainer

NAME = "trainer_state.pt"
DAMAGE = (
    OSError,
    RuntimeError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    EOFError,
    pickle.UnpicklingError,
)
"""What reading a file raises that is not what was written."""


def write_state(trainer: Trainer, folder: Path) -> None:
    """Write the trainer's state into a checkpoint directory; all who hold a part of it call this.

    Tensors are whole, so the run may continue with any number of processes, sharded or not.
    """
    main = trainer.accelerator.is_main_process
    state = {
        "step": trainer.step,
        "bf16": trainer.config.bf16,
        "settings": dump_settings(trainer.settings),
        "trained": whole(_trained(trainer), main),
        "optimizer": whole(trainer.optimizer.state_dict(), main),
        "schedule": trainer.schedule.state_dict(),
        "window": trainer.window.state_dict(),
    }
    if trainer.value is not None:
        trainer.value.save(folder, main)
    if main:
        torch.save(state, folder / NAME)


def read_state(trainer: Trainer, checkpoint: Path) -> None:
    """Continue from a checkpoint directory.

    Raises:
        ConfigError: it is damaged, belongs to another model or optimiser, or is of a run with other
            settings.
    """
    state = load_state(trainer, checkpoint, NAME)
    with resuming(checkpoint / NAME):
        assign(_trained(trainer), state["trained"])
        if trainer.value is not None:
            trainer.value.load(checkpoint)
        load_moments(trainer.optimizer, state["optimizer"])
        trainer.schedule.load_state_dict(state["schedule"])
        trainer.window.load_state_dict(state["window"])
    trainer.step = state["step"]
    warn_of_change(state.get("bf16"), bool(trainer.config.bf16))


def load_state(trainer: Trainer | SupervisedTrainer, checkpoint: Path, name: str) -> dict[str, Any]:
    """What a trainer has written, if it is of this run and this step; all processes call this.

    Args:
        trainer: of the run that goes on from it.
        checkpoint: the directory.
        name: of the file in it.

    Raises:
        ConfigError: it is damaged, or of a run with other settings.
    """
    if trainer.accelerator.is_local_main_process:  # one reading of all files is enough for a node
        verify_checksums(checkpoint)
    with resuming(checkpoint / name):
        # mapped where sharded: each process reads its parts of what is as large as all of them
        state = torch.load(
            checkpoint / name, map_location="cpu", weights_only=True, mmap=trainer.sharded
        )
        step, stored = state["step"], state.get("settings")
        named = int(checkpoint.name) if checkpoint.name.isdigit() else step
        if type(step) is not int or step < 0 or step != named:
            raise ValueError(f"its step is {step!r}, and that of the directory {named!r}")
    check_unchanged(stored, trainer.settings, trainer.settings.resume_with_changes)
    return state


@contextmanager
def resuming(path: Path) -> Iterator[None]:
    """Makes errors of a file that is not what it should be into one that says what to do."""
    try:
        yield
    except DAMAGE as error:
        raise ConfigError(
            f"'{path}' cannot be resumed from ({type(error).__name__}: {error}). It must be a"
            " complete checkpoint of a run with the same model, objective and optimiser settings."
        ) from error


def _trained(trainer: Trainer) -> dict[str, Tensor]:
    parameters = trainer.trained.named_parameters()
    value = () if trainer.value is None else trainer.value.trained.parameters()
    others = {id(p) for p in value}  # a head on the policy is kept with the value model
    return {name: p.data for name, p in parameters if p.requires_grad and id(p) not in others}
