"""Settings that every training run has, named as in TRL and transformers; `RLConfig` and
`SFTConfig` add theirs."""

from __future__ import annotations

import inspect
from copy import copy
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from mmrl.config import ConfigError, Settings, above, at_least, check, check_choice, one_of
from mmrl.config.checks import HUB_ID, is_hub_id
from mmrl.runtime.devices import check_planned

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LambdaLR
    from typing_extensions import Self

TRACKERS = {name: name for name in ("tensorboard", "trackio", "wandb", "swanlab")}
TRACKERS["prometheus"] = "prometheus_client"
"""Values of `report_to`, and the module of each."""
MAX_LEARNING_RATE = 1_000_000
"""A larger learning rate is a typing error."""
PLAIN_SCHEDULES = ("constant", "constant_with_warmup", "linear", "cosine")
"""Without arguments these cannot fail, so they are accepted without importing torch."""
LOSS_SCHEDULES = ("reduce_lr_on_plateau", "greedy")
"""Refused: they follow a loss, and resuming is exact only for functions of the step."""
SCHEDULE_ARGUMENTS = ("optimizer", "num_warmup_steps", "num_training_steps", "last_epoch")
"""Arguments of a schedule that come from other settings."""


@dataclass(kw_only=True)
class RunConfig(Settings):
    """A training run."""

    output_dir: str = "runs"
    """Run directory, see `mmrl.run.run_directory`."""
    seed: int = 0
    """Seed of every random draw: new weights, the order of examples, rollouts and masks."""
    max_steps: Annotated[int, at_least(1)] = 100
    """Steps of the whole run."""
    optimizer: Literal["adamw", "adamw_8bit", "sgd"] = "adamw"
    """`sgd` is plain gradient descent with momentum; its learning rates are far larger.
    `adamw_8bit` is that of bitsandbytes, whose moments have 8 bits (of embeddings 32)."""
    learning_rate: Annotated[float, above(0, up_to=MAX_LEARNING_RATE)] = 1e-5
    """Highest learning rate."""
    lr_scheduler_type: str = "constant_with_warmup"
    """Name of a transformers schedule: constant_with_warmup, linear, cosine, …"""
    lr_scheduler_kwargs: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the schedule, such as min_lr_rate for cosine_with_min_lr."""
    warmup_steps: Annotated[int, at_least(0)] = 0
    """Optimiser steps over which the learning rate rises from 0."""
    weight_decay: Annotated[float, at_least(0)] = 0.0
    """Decoupled weight decay of matrices and convolutions."""
    momentum: Annotated[float, at_least(0, below=1)] = 0.9
    """Momentum of SGD."""
    adam_beta1: Annotated[float, at_least(0, below=1)] = 0.9
    """First moment decay of AdamW."""
    adam_beta2: Annotated[float, at_least(0, below=1)] = 0.999
    """Second moment decay of AdamW."""
    adam_epsilon: Annotated[float, above(0, up_to=MAX_LEARNING_RATE)] = 1e-8
    """Denominator offset of AdamW."""
    max_grad_norm: Annotated[float, at_least(0)] = 1.0
    """Gradients are scaled down to this norm; 0 leaves them."""
    bf16: Literal["auto", True, False] = "auto"
    """Run forward passes under bfloat16 autocast; `auto` does so where the device computes bfloat16
    natively, see `mmrl.runtime.precision`."""
    torch_compile: bool = False
    """Compile the repeated blocks of the network. On a CPU it needs a C++ compiler, and the first
    step takes up to a minute longer."""
    device: Literal["auto", "cpu"] = "auto"
    """What computes: `auto` takes the GPU of each process, and the CPU where there is none, as on a
    Mac, whose Metal has no float64."""
    deterministic: bool = False
    """Take GPU kernels that give equal bits in every run, where torch has them, so that a resumed
    run equals one that was never stopped; slower. A kernel without such a form is named in a
    warning. On a CPU runs are equal without it."""
    tf32: bool = False
    """Multiply float32 matrices in TF32 on GPUs that have it: networks of rewards, and the policy
    with `bf16=false`, become several times faster with 10 instead of 23 bits of mantissa."""
    logging_steps: Annotated[int, at_least(1)] = 1
    """Steps between lines of metrics."""
    eval_steps: Annotated[int, at_least(0)] = 0
    """Steps between evaluations; 0 for none."""
    save_steps: Annotated[int, at_least(0)] = 50
    """Steps between checkpoints; 0 writes only the final model."""
    save_total_limit: Annotated[int | None, at_least(1)] = 2
    """Checkpoints to keep; null keeps all."""
    async_save: bool = True
    """Write checkpoints in a thread while training goes on; the state is first copied to the memory
    of the first process's machine. False waits until each is on disk, with less memory."""
    merge_adapter: bool = False
    """Write the whole model, with the adapter added to its weights, into `final/` of a run with
    LoRA; false writes the adapter. Checkpoints hold the adapter."""
    push_to_hub: bool = False
    """Upload `final/` to the Hugging Face hub at the end. The token is that of the environment."""
    hub_model_id: str | None = None
    """Repository to upload to, `owner/name` or a name; null is the name of `output_dir`."""
    hub_private_repo: bool | None = None
    """Whether a new repository is private; null follows the default of its owner."""
    resume_from_checkpoint: str | None = None
    """`auto` continues from the newest checkpoint of `output_dir` if there is one; or a path."""
    resume_with_changes: bool = False
    """Continue although settings that shape the run differ from those of the checkpoint."""
    report_to: list[Annotated[str, one_of(TRACKERS)]] = field(default_factory=list)
    """Trackers beside metrics.jsonl, for metrics and samples: tensorboard (into `tensorboard/` of
    the run directory), trackio (a local data base, see TRACKIO_DIR), wandb; without samples swanlab
    and prometheus (gauges at port MMRL_PROMETHEUS_PORT, 9400, of this machine)."""
    ddp_timeout: Annotated[float, above(0)] = 1800
    """Seconds without progress of any process, such as in a reward that hangs, after which the run
    ends and says which process hangs in which call; also the timeout of collectives. Loading and
    uploading are not limited."""
    profile: bool = False
    """Write traces of `profile_steps` into `profile/` of the run directory."""
    profile_steps: list[Annotated[int, at_least(1)]] = field(default_factory=lambda: [2])
    """Steps that `profile` traces, counted from the start of this command. The first one is slower
    than those after it."""
    dry_run: bool = False
    """Check everything, print the plan, and exit: 1 where the run would be refused."""
    devices: str | None = None
    """Devices that a dry run plans for, such as 8xA100-80GB or 2x24GB; null plans for those of this
    machine. Without `launch_config` each holds the whole model."""
    verbose: bool = False
    """Print every setting below the plan."""
    launch_config: str | None = None
    """Accelerate configuration whose launch a dry run plans, such as configs/accelerate/fsdp2.yaml;
    null plans the launch of this process. Runs take that of `accelerate launch --config_file`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer == "adamw_8bit":
            advice = 'Install bitsandbytes: pip install -e ".[quantization]"'
            here = bool(find_spec("bitsandbytes"))
            check(here, "optimizer", self.optimizer, "adamw or sgd without bitsandbytes", advice)
        most, decay = 1 / self.learning_rate, self.weight_decay
        advice = "Each step removes learning_rate * weight_decay of every weight."
        check(decay < most, "weight_decay", decay, f"below 1 / learning_rate ({most:g})", advice)
        advice = "Launch a run with: accelerate launch --config_file PATH -m …"
        given = self.launch_config
        check(given is None or self.dry_run, "launch_config", given, "null without dry_run", advice)
        check_planned(self)
        for tracker in self.report_to:
            here = bool(find_spec(TRACKERS[tracker]))
            advice = f'Install it: pip install -e ".[{tracker}]"'
            check(here, "report_to", tracker, "an installed package", advice)
        if self.push_to_hub:
            name = self.hub_model_id or Path(self.output_dir).resolve().name
            check(is_hub_id(name), "hub_model_id, or the name of output_dir,", name, HUB_ID)

    def changed(self, **settings: Any) -> Self:
        """A copy with other settings, which are not checked again."""
        other = copy(self)
        vars(other).update(settings)
        return other


def check_merge(settings: RunConfig, model: Any) -> None:
    """Refuse `merge_adapter` where there is no adapter, or where its base is rounded to 4 bits, by
    `lora` and `quantization_config` of the trained model, if it has them."""
    if settings.merge_adapter:
        adapter = getattr(model, "lora", None) is not None
        check(adapter, "merge_adapter", True, "false for a run without an adapter")
        packed = getattr(model, "quantization_config", None) is not None
        advice = "scripts/merge_adapter.py adds the adapter to the stored weights."
        check(not packed, "merge_adapter", True, "false with weights of 4 bits", advice)


def build_schedule(optimizer: Optimizer, settings: RunConfig, steps: int) -> LambdaLR:
    """The learning-rate schedule of an optimiser over `steps` of its steps."""
    from transformers import get_scheduler

    # absolute rates (min_lr, lr_end) are relative to this default, not to those of the groups
    optimizer.defaults["lr"] = settings.learning_rate
    name, arguments = settings.lr_scheduler_type, dict(settings.lr_scheduler_kwargs)
    return get_scheduler(name, optimizer, settings.warmup_steps, steps, arguments)  # type: ignore


def check_schedule(settings: RunConfig, steps: int) -> None:
    """Build the schedule of a run of `steps` for a dummy optimiser. Raises ConfigError: an unknown
    schedule, or unknown, missing or impossible arguments."""
    name, arguments = settings.lr_scheduler_type, dict(settings.lr_scheduler_kwargs)
    if name in PLAIN_SCHEDULES and not arguments:
        return
    import torch
    from transformers.optimization import TYPE_TO_SCHEDULER_FUNCTION
    from transformers.trainer_utils import SchedulerType

    known = [item.value for item in SchedulerType if item.value not in LOSS_SCHEDULES]
    check_choice("lr_scheduler_type", name, known)
    signature = inspect.signature(TYPE_TO_SCHEDULER_FUNCTION[SchedulerType(name)])
    keys = [key for key in signature.parameters if key not in SCHEDULE_ARGUMENTS]
    allowed = f"a mapping with keys of {', '.join(keys) or 'none'} for lr_scheduler_type={name}"
    check(arguments.keys() <= set(keys), "lr_scheduler_kwargs", arguments, allowed)
    try:
        build_schedule(torch.optim.SGD([torch.zeros(1)], settings.learning_rate), settings, steps)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ConfigError(
            f"lr_scheduler_kwargs is {arguments}, with which {name} cannot be built: {error}."
            f" Its keys: {', '.join(keys)}."
        ) from error
