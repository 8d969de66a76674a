"""Settings that every training run has, named as in TRL and transformers.

`RLConfig` and `SFTConfig` add theirs. The learning-rate schedules are those of transformers, which
are checked here, before any model loads.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from mmrl.config import ConfigError, check, check_choice
from mmrl.runtime.devices import check_planned

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LambdaLR

TRACKERS = ("tensorboard", "trackio", "wandb")
BNB_OPTIMIZERS = ("adamw_8bit", "paged_adamw", "paged_adamw_8bit")
"""AdamW of bitsandbytes."""
MAX_LEARNING_RATE = 1e6
"""A larger learning rate is a typing error."""
OUT_OF_TIME = 75
"""Exit status of a run that goes on when it is started again: EX_TEMPFAIL of sysexits.h."""
PLAIN_SCHEDULES = ("constant", "constant_with_warmup", "linear", "cosine")
"""Without arguments these cannot fail, so they are accepted without importing torch."""
LOSS_SCHEDULES = ("reduce_lr_on_plateau", "greedy")
"""Refused: they follow a loss, and resuming is exact only for functions of the step."""
SCHEDULE_ARGUMENTS = ("optimizer", "num_warmup_steps", "num_training_steps", "last_epoch")
"""Arguments of a schedule that come from other settings."""


@dataclass(kw_only=True)
class RunConfig:
    """A training run."""

    choices: ClassVar = {"report_to": TRACKERS}

    output_dir: str = "runs"
    """Run directory, see `mmrl.run.run_directory`."""
    seed: int = 0
    """Seed of every random draw: new weights, the order of examples, rollouts and masks."""
    max_steps: int = 100
    """Steps of the whole run."""
    max_hours: float | None = None
    """Hours of this launch, after which the run stops with a checkpoint and exit status 75 (0 under
    a launcher of several processes); it stops before a step that would end later, as far as the
    longest so far shows. A resumed run has as many again. Null is no limit."""
    optimizer: Literal["adamw", "adamw_8bit", "paged_adamw", "paged_adamw_8bit", "sgd"] = "adamw"
    """`sgd` is plain gradient descent with momentum; its learning rates are far larger. Those of
    bitsandbytes keep AdamW's moments in 8 bits (embeddings in 32), or in pages that move to the
    memory of the host while a GPU has no room."""
    learning_rate: float = 1e-5
    """Highest learning rate."""
    learning_rate_scales: dict[str, float] = field(default_factory=dict)
    """Factors on the learning rate of parameters whose name starts with the key."""
    lr_scheduler_type: str = "constant_with_warmup"
    """Name of a transformers schedule: constant_with_warmup, linear, cosine, …"""
    lr_scheduler_kwargs: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the schedule, such as min_lr_rate for cosine_with_min_lr."""
    warmup_steps: int = 0
    """Optimiser steps over which the learning rate rises from 0."""
    weight_decay: float = 0.0
    """Decoupled weight decay of matrices and convolutions."""
    momentum: float = 0.9
    """Momentum of SGD."""
    adam_beta1: float = 0.9
    """First moment decay of AdamW."""
    adam_beta2: float = 0.999
    """Second moment decay of AdamW."""
    adam_epsilon: float = 1e-8
    """Denominator offset of AdamW."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm; 0 leaves them."""
    on_nonfinite: Literal["stop", "skip"] = "stop"
    """What to do where a gradient is infinite or NaN: `stop` the run, or `skip` the optimiser step,
    which leaves weights, moments and schedule as they were. Both log the prompts."""
    max_skipped_steps: int = 10
    """Optimiser steps in a row that may be skipped; the next one stops the run."""
    bf16: Literal["auto", True, False] = "auto"
    """Run forward passes under bfloat16 autocast; `auto` does so where the device computes bfloat16
    natively, see `mmrl.runtime.precision`."""
    torch_compile: bool = False
    """Compile the repeated blocks of the network. On a CPU it needs a C++ compiler, and the first
    step takes up to a minute longer."""
    deterministic: bool = False
    """Take GPU kernels that give equal bits in every run, where torch has them, so that a resumed
    run equals one that was never stopped; slower. A kernel without such a form is named in a
    warning. On a CPU runs are equal without it."""
    tf32: bool = False
    """Multiply float32 matrices in TF32 on GPUs that have it: networks of rewards, and the policy
    with `bf16=false`, become several times faster with 10 instead of 23 bits of mantissa."""
    logging_steps: int = 1
    """Steps between lines of metrics."""
    eval_steps: int = 0
    """Steps between evaluations; 0 for none."""
    save_steps: int = 50
    """Steps between checkpoints; 0 writes only the final model."""
    save_total_limit: int | None = 2
    """Checkpoints to keep; null keeps all."""
    metric_for_best_model: str | None = None
    """Metric of evaluations, as in metrics.jsonl with or without `eval/`. A step whose evaluation
    is the best so far gets a checkpoint, which `save_total_limit` does not remove. Null for none;
    an evaluation before the first step does not count."""
    greater_is_better: bool | None = None
    """Whether the largest value of that metric is the best; null for yes unless it ends with
    loss."""
    load_best_model_at_end: bool = False
    """Write the model of the best checkpoint into `final/`; false writes that of the last step."""
    async_save: bool = True
    """Write checkpoints in a thread while training goes on; the state is first copied to the memory
    of the first process's machine. False waits until each is on disk, with less memory."""
    merge_adapter: bool = False
    """Write the whole model, with the adapter added to its weights, into `final/` of a run with
    LoRA; false writes the adapter. Checkpoints hold the adapter."""
    push_to_hub: bool = False
    """Upload `final/` to the Hugging Face hub at the end. The token is that of the environment."""
    hub_strategy: Literal["end", "every_save", "checkpoint"] = "end"
    """What `push_to_hub` uploads besides, in the background: with `every_save` the model of each
    checkpoint, unless one is still being uploaded; with `checkpoint` also all that resuming needs,
    as `last-checkpoint/`. Where that fails the run goes on with a warning."""
    hub_model_id: str | None = None
    """Repository to upload to, `owner/name` or a name; null is the name of `output_dir`."""
    hub_private_repo: bool | None = None
    """Whether a new repository is private; null follows the default of its owner."""
    resume_from_checkpoint: str | None = None
    """`auto` continues from the newest checkpoint of `output_dir` if there is one; or a path."""
    resume_with_changes: bool = False
    """Continue although settings that shape the run differ from those of the checkpoint."""
    report_to: list[str] = field(default_factory=list)
    """Trackers beside metrics.jsonl, for metrics and samples: tensorboard (into `tensorboard/` of
    the run directory), trackio (a local data base, see TRACKIO_DIR), wandb."""
    ddp_timeout: float = 1800
    """Seconds without progress of any process, such as in a reward that hangs, after which the run
    ends and says which process hangs in which call; also the timeout of collectives. Loading and
    uploading are not limited."""
    profile: bool = False
    """Write traces of `profile_steps` into `profile/` of the run directory."""
    profile_steps: list[int] = field(default_factory=lambda: [2])
    """Steps that `profile` traces, counted from the start of this command. The first one is slower
    than those after it."""
    dry_run: bool = False
    """Check everything, print the plan, and exit: 1 where the run would be refused."""
    devices: str | None = None
    """Devices that a dry run plans for, such as 8xA100-80GB or 2x24GB; null plans for those of this
    machine. Without `launch_config` each holds the whole model."""
    verbose: bool = False
    """Print every setting below the plan, and what its memory and rewards are made of."""
    launch_config: str | None = None
    """Accelerate configuration whose launch a dry run plans, such as configs/accelerate/fsdp2.yaml;
    null plans the launch of this process. Runs take that of `accelerate launch --config_file`."""

    def __post_init__(self) -> None:
        for key in ("max_steps", "logging_steps"):
            check(getattr(self, key) >= 1, key, getattr(self, key), "at least 1")
        for key in ("eval_steps", "save_steps", "warmup_steps"):
            check(getattr(self, key) >= 0, key, getattr(self, key), "0 or more")
        limit = self.max_hours
        check(limit is None or limit > 0, "max_hours", limit, "null or positive")
        self._check_best()
        number = self.max_skipped_steps
        check(number >= 1, "max_skipped_steps", number, "at least 1")
        limit = self.ddp_timeout
        check(0 < limit < math.inf, "ddp_timeout", limit, "positive and finite, in seconds")
        self._check_optimizer()
        steps = self.profile_steps
        check(all(step >= 1 for step in steps), "profile_steps", steps, "numbers from 1")
        limit = self.save_total_limit
        check(limit is None or limit >= 1, "save_total_limit", limit, "null or at least 1")
        advice = "Launch a run with: accelerate launch --config_file PATH -m …"
        given = self.launch_config
        check(given is None or self.dry_run, "launch_config", given, "null without dry_run", advice)
        check_planned(self)
        for tracker in self.report_to:
            check_choice("report_to", tracker, TRACKERS)
            advice = f'Install it: pip install -e ".[{tracker}]"'
            check(bool(find_spec(tracker)), "report_to", tracker, "an installed package", advice)

    def _check_best(self) -> None:
        """Raise a ConfigError where there is nothing to choose the best checkpoint by."""
        metric, wanted = self.metric_for_best_model, self.load_best_model_at_end
        allowed = "null without evaluations"
        known = metric is None or self.eval_steps > 0
        check(known, "metric_for_best_model", metric, allowed, "Set eval_steps.")
        advice = "Set metric_for_best_model."
        chosen = metric is not None or not wanted
        check(chosen, "load_best_model_at_end", wanted, "false without a metric", advice)

    def _check_optimizer(self) -> None:
        """Raise a ConfigError for a number that no optimiser can train with."""
        if self.optimizer in BNB_OPTIMIZERS:
            advice = 'Install bitsandbytes: pip install -e ".[quantization]"'
            here = bool(find_spec("bitsandbytes"))
            check(here, "optimizer", self.optimizer, "adamw or sgd without bitsandbytes", advice)
        for key in ("learning_rate", "adam_epsilon"):
            value = getattr(self, key)
            allowed = f"positive, finite and at most {MAX_LEARNING_RATE:g}"
            check(0 < value <= MAX_LEARNING_RATE, key, value, allowed)
        most, decay = 1 / self.learning_rate, self.weight_decay
        allowed = f"0 or more, finite, and below 1 / learning_rate ({most:g})"
        advice = "Each step removes learning_rate * weight_decay of every weight."
        check(0 <= decay < most, "weight_decay", decay, allowed, advice)
        scales = {f"learning_rate_scales.{k}": v for k, v in self.learning_rate_scales.items()}
        for key, value in {"max_grad_norm": self.max_grad_norm, **scales}.items():
            check(0 <= value < math.inf, key, value, "0 or more, and finite")
        for key in ("momentum", "adam_beta1", "adam_beta2"):
            value = getattr(self, key)
            check(0 <= value < 1, key, value, "from 0 to below 1")


def check_merge(settings: RunConfig, model: Any) -> None:
    """Refuse `merge_adapter` where there is no adapter, or where its base is rounded to 4 bits.

    Args:
        settings: of the run.
        model: settings of the trained model: `lora` and `quantization_config`, if it has them.
    """
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
    return get_scheduler(
        settings.lr_scheduler_type,
        optimizer,
        settings.warmup_steps,
        steps,
        dict(settings.lr_scheduler_kwargs),
    )  # type: ignore[return-value]


def check_schedule(settings: RunConfig, steps: int) -> None:
    """Build the schedule of a run of `steps` for a dummy optimiser and read some of its rates.

    Raises:
        ConfigError: an unknown schedule, unknown or missing arguments, or impossible rates.
    """
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
    allowed = f"a mapping with keys of {', '.join(keys)}" if keys else "empty"
    allowed += f" for lr_scheduler_type={name}"
    check(arguments.keys() <= set(keys), "lr_scheduler_kwargs", arguments, allowed)
    dummy = torch.optim.SGD([torch.zeros(1)], lr=settings.learning_rate)
    try:
        [rate] = build_schedule(dummy, settings, steps).lr_lambdas
        rates = [rate(n) for n in range(0, steps + 1, math.ceil(steps / 100))]
        possible = all(0 <= value < math.inf for value in rates)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ConfigError(
            f"lr_scheduler_kwargs is {arguments}, with which {name} cannot be built: {error}."
            f" Its keys: {', '.join(keys)}."
        ) from error
    check(possible, "lr_scheduler_kwargs", arguments, "one that gives rates of 0 or more")
