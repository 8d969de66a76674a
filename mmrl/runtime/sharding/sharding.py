"""What trainers ask of the way in which processes share a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim import Optimizer

from mmrl.config import ConfigError
from mmrl.models.network.network import find_networks
from mmrl.runtime.sharding.sampling import RolloutWeights, choose_together, sample_by_block
from mmrl.runtime.sharding.tensors import gather_whole, held_part, take_part, write_part

if TYPE_CHECKING:
    from mmrl.models import Policy


Prepared = tuple[list[nn.Module], list[Any]]
"""Models and optimisers as training calls them."""
MASTER = "master_weight"
"""Of an optimiser's state: the float32 weights that DeepSpeed has beside weights of a lower
precision. A run without it does not continue from them."""


class Sharding:
    """Every process holds the whole model: one process, or DDP, which reduces gradients.

    Attributes:
        shards: whether processes share weights, gradients or moments. All then take part in every
            forward and backward pass of an update, and in gathering what is saved.
        gathers: whether they share one copy of the weights, which every forward pass gathers. A
            model that is sharded has its own copy; of a network whose loading is deferred, `shard`
            reads the part of this process.
    """

    shards = gathers = False

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator

    @property
    def takes_part(self) -> bool:
        """Whether this process takes part in saving: the main one, or each that has a part."""
        return self.shards or self.accelerator.is_main_process

    def shard(self, model: nn.Module, trained: bool = True, whole: bool = False) -> None:
        """Leave this process its part of every parameter of a model, in place, to be given to
        `prepare` where it is `trained`; before the optimiser is built. Where rollouts have `whole`
        weights, those that are not trained stay whole. Raises ConfigError: a model that cannot be
        sharded in this way."""

    def shard_policy(
        self, policy: Policy, rollout_weights: RolloutWeights = "auto", trained: bool = True
    ) -> None:
        """`shard` of the model of a policy, with what is trained marked, and the context in which
        it samples by `rollout_weights`, see `mmrl.runtime.sharding.sampling`."""
        model = policy.model
        whole = self.gathers and choose_together(rollout_weights, model, self.accelerator)
        self.shard(model, trained, whole)
        if whole:
            policy.sampling = partial(self.sample_whole, model)
        elif self.gathers:
            sample_by_block(policy, self.accelerator.device)

    def sample_whole(self, model: nn.Module, forwards_differ: bool) -> AbstractContextManager[None]:
        """A context in which all weights are gathered, once; calls inside need no other process."""
        raise NotImplementedError("every process has the whole model")

    def prepare(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> Prepared:
        """Models that `shard` was called with, and their optimisers; where `shards`, one optimiser
        for each model."""
        prepared = self.accelerator.prepare(*models, *optimizers)
        return list(prepared[: len(models)]), list(prepared[len(models) :])

    @contextmanager
    def accumulate(self, models: Sequence[nn.Module], last: bool) -> Iterator[None]:
        """Forward and backward passes of a micro-batch, maybe the last before an optimiser step,
        of models as `prepare` returned them."""
        with ExitStack() as stack:
            for model in () if last else models:
                stack.enter_context(self.accelerator.no_sync(model))
            yield

    def backward(self, loss: Tensor, model: nn.Module) -> None:
        """Add the gradient of a loss of one model, as `prepare` returned it; the optimiser sees the
        mean over processes."""
        self.accelerator.backward(loss)

    def clip_gradient(self, model: nn.Module, limit: float) -> Tensor:
        """Scale the gradient of a model, before or after `prepare`, down to a norm; return its norm
        before, on the CPU."""
        norm = self.accelerator.clip_grad_norm_(model.parameters(), limit)
        return gather_whole(torch.as_tensor(0.0 if norm is None else norm))

    def weights(self, module: nn.Module) -> dict[str, Tensor]:
        """The `state_dict` of a module, as this process holds it."""
        return {name: held_part(t) for name, t in module.state_dict(keep_vars=True).items()}

    def gather(self, state: Any) -> Any:
        """A nested state with whole tensors on the CPU on the main process, without them on the
        others. All processes call this that take part. The tensors are copies, which the next step
        does not change: a thread may still be writing them."""
        return gather_whole(state, self.accelerator.is_main_process)

    @torch.no_grad()
    def assign(self, targets: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
        """Copy whole tensors into those of the same names, as these are held. Raises ValueError:
        the names are not the same."""
        if wrong := sorted(targets.keys() ^ values.keys()):
            raise ValueError(f"{len(wrong)} tensors differ from those trained here: {wrong[:4]}")
        for name, target in targets.items():
            write_part(target, take_part(values[name], target))

    def load_optimizer(self, optimizer: Any, state: dict[str, Any]) -> None:
        """Load an optimiser's `state_dict` of whole tensors, counted as in one process, after the
        weights: their names are compared."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        moments = {
            place: {
                name: take_part(value, parameters[place]) if isinstance(value, Tensor) else value
                for name, value in values.items()
                if name != MASTER
            }
            for place, values in state["state"].items()
        }
        optimizer.load_state_dict({**state, "state": moments})


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """The blocks of a model's networks, the units in which it is sharded. Raises ConfigError: a
    model without a network that names its blocks, with weights of 4 bits, or with experts."""
    networks = find_networks(model)
    blocks = [block for network in networks for block in network.blocks]
    apart = not all(network.can_shard for network in networks)
    packed = not all(parameter.is_floating_point() for parameter in model.parameters())
    if packed or apart or not blocks:
        why = "weights of 4 bits are not sharded" if packed else "it names no block to shard"
        why = "its experts predict different rows on each process" if apart else why
        raise ConfigError(
            f"the accelerate configuration asks to shard a {type(model).__name__}: {why}. Launch it"
            " with --config_file configs/accelerate/multi_gpu.yaml."
        )
    return blocks
