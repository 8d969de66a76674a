"""The trained policy of an RL run: adapter or weights, reference, value model, optimiser."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from mmrl.models import Policy
from mmrl.models.adapter_weights import adapter_tensors, has_adapter
from mmrl.models.network.value_head import ValueHead, ValueNetwork, copy_backbone
from mmrl.models.policy import merge_directory
from mmrl.pretrained.known import adapter_directory
from mmrl.rewards.networks.placement import move_networks
from mmrl.rl_config import RLConfig
from mmrl.run_config import build_schedule
from mmrl.runtime.sharding.tensors import held_part, write_part
from mmrl.training.ema import ExponentialAverage
from mmrl.training.optimizers import build_optimizers
from mmrl.training.run_trainer import RunTrainer
from mmrl.training.trainable import (
    copy_start,
    freeze_copy,
    shared_parameters,
    swap_values,
    train_parts,
)

logger = logging.getLogger(__name__)


class TrainedPolicy(RunTrainer[RLConfig]):
    """The policy of an RL run with its reference, value model, optimiser and schedule.

    Attributes:
        trained: the policy's model, not wrapped for several processes.
        frozen: a copy of it as it was, the reference; None with an adapter, or without a KL.
        reference_moves: whether the reference follows the policy.
        reference_is_base: whether the reference of a run with an adapter is the model without it.
        initial_values: what an adapter's run trains in full, as it was, where there is a KL; the
            adapter too where the reference has one.
        averaged: the old policy of contrasts, an average of what is trained; None without.
        betas: the weight of the KL of each task that has a target for it.
        value: the value model, if there is one, maybe wrapped for several processes.
    """

    def __init__(self, config: RLConfig, policy: Policy, accelerator: Accelerator) -> None:
        super().__init__(config, accelerator, config.model.dtype)
        config, model, self.policy = self.config, config.model, policy
        self.reference_moves = config.sync_ref_model and config.needs_reference
        policy.network.gradient_checkpointing = model.gradient_checkpointing
        self.frozen = None
        if config.needs_reference and model.lora is None:
            self.frozen = freeze_copy(policy.network, model, self.sharding)
            self.set_precision(self.frozen)
        self.value: nn.Module | None = None
        if config.value is not None:
            self.value = build_value_model(config, policy, self.sharding.gathers)
            self.set_precision(self.value)
            self.sharding.shard(self.value)
        self.set_precision(policy.network)
        self.trained = policy.model = train_parts(policy.network, model, config.seed)
        self.log_trained(policy.network)
        self.micro_batch_size = config.micro_batch_size(accelerator.num_processes)
        logger.info("per_device_train_batch_size: %d", self.micro_batch_size)
        self.sharding.shard_policy(policy, config.rollout_weights)
        keeps_start = config.needs_reference and model.lora is not None
        # where an adapter is continued, the reference is the policy with it as it was
        self.reference_is_base = not self.reference_moves and adapter_directory(model.path) is None
        adapted = not self.reference_is_base
        self.initial_values = copy_start(policy.network, adapted) if keeps_start else {}
        self.betas: dict[str, float] = {}
        self.averaged = None
        if config.old_policy is not None:
            self.averaged = ExponentialAverage(policy.network, 0.0)
        self.modules, optimizers = [self.trained], build_optimizers(policy.model, config)
        if self.value is not None and config.value is not None:
            self.modules.append(self.value)
            rate = config.learning_rate * config.value.learning_rate_scale
            optimizers += build_optimizers(self.value, config.changed(learning_rate=rate))
        steps = config.optimizer_steps
        self.schedules = [build_schedule(one, config, steps) for one in optimizers]
        [policy.model, *wrapped], self.optimizers = self.sharding.prepare(self.modules, optimizers)
        if self.value is not None:
            [self.value] = wrapped
        policy.model.eval()  # no dropout: new and old log-probs must come from the same function

    @contextmanager
    def reference(self) -> Iterator[None]:
        """The policy as it was at the start or when the reference last followed it: the frozen copy
        in its place, or else the adapter off or at its former values."""
        if self.frozen is None:
            adapter_off: Any = self.trained.disable_adapter
            without = adapter_off if self.reference_is_base else nullcontext
            with without(), swap_values(self.policy.network, self.initial_values):
                yield
            return
        trained, self.policy.model = self.policy.model, self.frozen
        try:
            yield
        finally:
            self.policy.model = trained

    def offload(self, away: bool) -> float:
        """Move what no update reads to the memory of the host, or back, where that is wanted:
        networks of rewards, parts of a pipeline, an engine in this process. Returns the seconds."""
        started = time.perf_counter()
        if self.config.offload:
            move_networks(away)  # all scores are known, so no reward is at work
            if self.policy.engine is not None:
                self.policy.engine.rest(away)
            self.policy.network.move_parts("cpu" if away else self.policy.device)
            if torch.accelerator.is_available():
                torch.accelerator.memory.empty_cache()
        return time.perf_counter() - started

    @torch.no_grad()
    def sync_reference(self) -> None:
        """Move the reference towards the policy by `ref_model_mixup_alpha`, as TRL does. Of an
        adapter its two factors are mixed, not their product."""
        alpha = self.config.ref_model_mixup_alpha
        present = dict(self.policy.network.named_parameters())
        for name, value in self._reference_tensors().items():
            own = held_part(present[name]).float()
            write_part(value, (1 - alpha) * value.float() + alpha * own)

    def write_model(self, folder: Path, merge: bool) -> None:
        """Write the policy in its public format, or its adapter in PEFT's."""
        network = self.policy.network
        weights = self.sharding.weights(network)
        adapter = has_adapter(weights)
        if adapter:  # the frozen base stays where it is
            weights = adapter_tensors(network, weights)
        state = self.sharding.gather(weights)
        if self.accelerator.is_main_process:
            self.policy.save(folder, self.config.save_dtype, state)
            if merge and adapter:
                merge_directory(folder, self.config.save_dtype or self.config.model.dtype)

    def state(self) -> dict[str, Any]:
        """Trained weights of the policy and of a value model, and a reference that follows."""
        return {
            **({"reference": self._reference_tensors()} if self.reference_moves else {}),
            **({} if self.averaged is None else {"old_policy": self.averaged.average}),
            "betas": dict(self.betas),
            "trained": [_trained_tensors(module) for module in self.modules],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        for module, tensors in zip(self.modules, state["trained"], strict=True):
            self.sharding.assign(_trained_tensors(module), tensors)
        self.betas = dict(state["betas"])
        if self.averaged is not None:
            self.sharding.assign(self.averaged.average, state["old_policy"])
        if self.reference_moves and "reference" in state:
            self.sharding.assign(self._reference_tensors(), state["reference"])

    def _reference_tensors(self) -> dict[str, Tensor]:
        """The weights of the reference that are not the policy's own."""
        if self.frozen is None:
            return self.initial_values
        trained = {n for n, p in self.policy.network.named_parameters() if p.requires_grad}
        return {n: held_part(p) for n, p in self.frozen.named_parameters() if n in trained}


def build_value_model(config: RLConfig, policy: Policy, sharded: bool) -> ValueNetwork:
    """What predicts the return of the states of a rollout: a head on a copy of a policy that is
    neither adapted nor wrapped yet, with `sharded` without its weights.

    All tasks with `algorithm.value` share one. It is trained as the policy is: all weights, some of
    them or an adapter; frozen weights are shared. It has no output matrix, a separate backward
    pass, gradient norm and optimiser; a run saves its trained part in the state of the trainer."""
    network = policy.network
    backbone = copy_backbone(network, shared_parameters(network, config.model, sharded))
    backbone.set_attention(config.model.attn_implementation)
    dtype = next(network.parameters()).dtype
    if config.model.lora is not None:
        dtype = torch.promote_types(dtype, torch.float32)  # as the adapter has
    train_parts(backbone, config.model, config.seed)
    return ValueNetwork(backbone, ValueHead(network.width, policy.device, dtype)).eval()


def _trained_tensors(module: nn.Module) -> dict[str, Tensor]:
    return {n: held_part(p) for n, p in module.named_parameters() if p.requires_grad}
