"""What an RL checkpoint holds beside the model: trained tensors, optimiser, open metrics, step.

Draws need no state: every generator is named by the seed and the step. The reference policy needs
none either: it is the checkpoint that the run started from.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import Tensor

from mmrl.config import ConfigError

if TYPE_CHECKING:
    from mmrl.trainer import Trainer

NAME = "trainer_state.pt"
_WHOLE_MODEL = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)


def check_whole_model(accelerator: Accelerator) -> None:
    """Raise a ConfigError where processes hold only shards of the model."""
    if accelerator.distributed_type not in _WHOLE_MODEL:
        raise ConfigError(
            f"the accelerate configuration asks for {accelerator.distributed_type}, which shards"
            " the model; every device must hold all of it: use one process, MULTI_GPU or MULTI_CPU."
        )


def write_state(trainer: Trainer, folder: Path) -> None:
    """Write the trainer's state into a checkpoint directory."""
    state = {
        "step": trainer.step,
        "trained": _trained(trainer),
        "optimizer": trainer.optimizer.state_dict(),
        "schedule": trainer.schedule.state_dict(),
        "window": trainer.window.state_dict(),
    }
    torch.save(state, folder / NAME)


def read_state(trainer: Trainer, checkpoint: Path) -> None:
    """Continue from a checkpoint directory.

    Raises:
        ConfigError: it is damaged, or belongs to another model or optimiser.
    """
    path = checkpoint / NAME
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        _assign(_trained(trainer), state["trained"])
        trainer.optimizer.load_state_dict(state["optimizer"])
        trainer.schedule.load_state_dict(state["schedule"])
        trainer.window.load_state_dict(state["window"])
        trainer.step = int(state["step"])
    except (OSError, RuntimeError, ValueError, KeyError, EOFError, pickle.UnpicklingError) as error:
        raise ConfigError(
            f"'{path}' cannot be resumed from ({type(error).__name__}: {error}). It must be a"
            " complete checkpoint of a run with the same model, adapter and optimiser settings."
        ) from error


def _trained(trainer: Trainer) -> dict[str, Tensor]:
    parameters = trainer.trained.named_parameters()
    return {name: p.data for name, p in parameters if p.requires_grad}


def _assign(targets: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    if targets.keys() != values.keys():
        raise ValueError(f"{len(targets)} tensors are trained here, {len(values)} are stored")
    for name, target in targets.items():
        target.copy_(values[name])
