"""Sharding by DeepSpeed ZeRO: gradients and optimiser moments, with stage 3 the weights as well.

An accelerate configuration of `distributed_type: DEEPSPEED` asks for it. Every model that trains
has an engine; accelerate would build one alone, so they are built here. With stage 3 a frozen model
has one that only gathers its weights, module by module. An optimiser works on float32 master
weights, in flat tensors of which every process has a slice; DeepSpeed's own functions read and set
the part of a parameter in them.

The gradient is accumulated over as many backward passes as a step has: the engine learns which is
the last, and divides by the number of processes alone. Clipping is DeepSpeed's, by a norm that is
computed before the step is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.optim import Optimizer

from mmrl.models.network.token_network import find_encoders, is_trained
from mmrl.runtime.placement import read_placement
from mmrl.runtime.sharding.loading import divide_parameters
from mmrl.runtime.sharding.sharding import MASTER, Prepared, Sharding, find_blocks
from mmrl.runtime.sharding.tensors import held_part, slice_whole


class Zero2(Sharding):
    """Every process holds the weights, and its part of gradients and moments."""

    shards = True

    def __init__(self, accelerator: Accelerator) -> None:
        super().__init__(accelerator)
        self.engines: list[Any] = []

    def shard(self, model: nn.Module, trained: bool = True, whole: bool = False) -> None:
        """Refuse a model that DeepSpeed cannot train, as `find_blocks` does."""
        find_blocks(model)

    def prepare(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> Prepared:
        """The engines of the models, and their optimisers, one each."""
        import deepspeed

        settings = self._settings(self._zero)
        settings["zero_allow_untested_optimizer"] = True
        # the AdamW that DeepSpeed has for the CPU must be compiled first; torch's is as fast fused
        settings["zero_force_ds_cpu_optimizer"] = False
        wrapped = []
        for model, optimizer in zip(models, optimizers, strict=True):
            if self._zero["offload_optimizer"]["device"] == "cpu":
                for group in optimizer.param_groups:
                    group["fused"] = True
            # engines put flat ones in their place
            parameters = [list(group["params"]) for group in optimizer.param_groups]
            each = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
            self.engines.append(each[0])
            wrapped.append(EngineOptimizer(each[0], parameters, optimizer))
        return list(self.engines), wrapped

    @contextmanager
    def accumulate(self, models: Sequence[nn.Module], last: bool) -> Iterator[None]:
        """Tell the engines whether a micro-batch is the last before a step."""
        for engine in self.engines:
            engine.set_gradient_accumulation_boundary(last)
        yield

    def backward(self, loss: Tensor, model: Any) -> None:
        """Add the gradient of a loss of an engine; the optimiser sees the mean over processes."""
        model.backward(loss, scale_wrt_gas=False)

    def clip_gradient(self, model: nn.Module, limit: float) -> Tensor:
        """Let the step scale the gradient down to a norm; return its norm before, on the CPU."""
        from deepspeed.runtime.utils import is_invalid_grad_norm

        [zero] = [each.optimizer for each in self.engines if model is each or model is each.module]
        zero.clip_grad = 0.0 if limit == float("inf") else limit
        norm = torch.as_tensor(self._norm(zero)).detach().cpu().float()
        # DeepSpeed writes -1 in the place of what is not finite
        return norm.new_tensor(float("inf")) if is_invalid_grad_norm(norm) else norm

    def _norm(self, zero: Any) -> Tensor:
        return zero.scaled_global_norm()

    @property
    def _zero(self) -> dict[str, Any]:
        return self.accelerator.deepspeed_plugin.deepspeed_config["zero_optimization"]  # type: ignore[union-attr]

    def _settings(self, zero: Mapping[str, Any]) -> dict[str, Any]:
        """Settings of DeepSpeed that a run fixes, and those of its optimiser `zero`."""
        return {
            # of no consequence: a step has as many backward passes as the run says
            "train_micro_batch_size_per_gpu": 1,
            "train_batch_size": self.accelerator.num_processes,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": 0.0,  # `clip_gradient` sets it
            "steps_per_print": float("inf"),
            # every weight is held once, so that there is one tensor to change
            "zero_optimization": {**zero, "stage3_param_persistence_threshold": 0},
        }

    def assign(self, targets: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
        """Copy whole tensors into weights, and into the master weights of the optimiser."""
        super().assign(targets, values)
        for engine in self.engines:
            engine.optimizer.refresh_fp32_params()

    def load_optimizer(self, optimizer: EngineOptimizer, state: dict[str, Any]) -> None:
        """Load an optimiser's `state_dict` of whole tensors, counted as in one process."""
        optimizer.load_state_dict(state)


class Zero3(Zero2):
    """Every process holds its part of weights, gradients and moments."""

    gathers = True

    def __init__(self, accelerator: Accelerator) -> None:
        super().__init__(accelerator)
        self.frozen: list[Any] = []
        self.keeps_frozen = False

    def shard(self, model: nn.Module, trained: bool = True, whole: bool = False) -> None:
        """Leave this process its part of every parameter; read those of one that is not loaded
        yet. What stays whole is so beside its parts."""
        super().shard(model, trained)
        if whole:
            self.keeps_frozen = not read_placement().offload_weights
        for encoder in find_encoders(model):
            # gathered at once, as processes encode different numbers of images
            encoder._z3_leaf = not is_trained(encoder)  # type: ignore[assignment]
        # a model that is not trained has no optimiser
        zero = {key: value for key, value in self._zero.items() if key != "offload_optimizer"}
        settings = self._settings(zero)
        own_parameters(model, trained)
        divide_parameters(model, settings)
        if not trained:
            import deepspeed

            self.frozen.append(deepspeed.initialize(model=model, config=settings)[0])

    @contextmanager
    def sample_whole(self, model: nn.Module, forwards_differ: bool) -> Iterator[None]:
        """Gather once what is not kept whole; calls inside need no other process."""
        from deepspeed.runtime.zero import GatheredParameters
        from deepspeed.runtime.zero.parameter_offload import FWD_MODULE_STACK

        [engine] = [each for each in (*self.engines, *self.frozen) if each.module is model]
        offload = getattr(engine.optimizer, "parameter_offload", engine.optimizer)
        kept = {id(parameter) for parameter in self._kept()}
        rest = nn.ParameterList(p for p in model.parameters() if id(p) not in kept)
        rest.ds_external_parameters = list  # type: ignore[assignment]
        offload.get_param_coordinator().release_and_reset_all(rest)
        with GatheredParameters(list(rest)):
            # modules would agree on what they gather, and free it
            offload._remove_module_hooks()
            offload.forward_hooks, offload.backward_hooks = [], []
            try:
                yield
            finally:
                offload.setup_zero_stage3_hooks()
                FWD_MODULE_STACK.pop()  # which setting up appends to
        self._keep_whole()  # what others have gathered and freed since

    def prepare(self, models: Sequence[nn.Module], optimizers: Sequence[Optimizer]) -> Prepared:
        """The engines of the models, the first of which samples, and their optimisers."""
        prepared, model = super().prepare(models, optimizers), models[0]
        # rows without an image give these a gradient of zero, though none of their modules
        # computes, and processes encode different numbers of images
        encoders = filter(is_trained, find_encoders(model))
        seeing = {id(parameter) for encoder in encoders for parameter in encoder.parameters()}
        self._keep_whole(
            parameter
            for parameter in model.parameters()
            if id(parameter) in seeing or (self.keeps_frozen and not parameter.requires_grad)
        )
        return prepared

    def _kept(self) -> list[Any]:
        """Parameters that are never freed."""
        return self.engines[0].optimizer.persistent_parameters if self.engines else []

    def _keep_whole(self, parameters: Iterable[Any] = ()) -> None:
        """Gather some parameters, never to free them, and those that are kept already."""
        kept = self._kept()
        for parameter in parameters:
            # while DeepSpeed still learns in which order modules compute, it frees persistent
            # parameters after a module too, but not those that it calls external
            parameter.ds_persist = parameter.is_external_param = True
            kept.append(parameter)
        if kept:
            kept[0].all_gather(kept)

    def _norm(self, zero: Any) -> Tensor:
        from deepspeed.runtime.utils import combine_grad_norm_groups

        return combine_grad_norm_groups(zero._get_norm_groups())


class EngineOptimizer:
    """The optimiser of an engine, with the parameters and the state that it has in one process: the
    `groups` of parameters before the engine was built, which steps `optimizer` on flat tensors."""

    def __init__(self, engine: Any, groups: list[list[Tensor]], optimizer: Optimizer) -> None:
        self.engine, self.groups, self.optimizer = engine, groups, optimizer
        self.parameters: list[Any] = [parameter for group in groups for parameter in group]
        self.parted = engine.zero_optimization_partition_weights()

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """With learning rates and other options."""
        return self.optimizer.param_groups

    @property
    def state(self) -> Mapping[Any, dict[str, Any]]:
        """Of the flat tensors."""
        return self.optimizer.state

    def step(self) -> None:
        """Clip the gradient as `clip_gradient` said, change the weights and drop the gradient."""
        self.engine.step()
        self._forget(self.engine.optimizer)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradient, also one that is only partly accumulated."""
        self.engine.optimizer.zero_grad(set_to_none=True)
        self._forget(self.engine.optimizer)

    def _forget(self, zero: Any) -> None:
        if self.parted:
            # parameters without a gradient in the next step would keep that of this one
            zero.grad_partitions_flat_buffer.zero_()
            for flat in zero.fp32_partitioned_groups_flat if zero.offload_optimizer else ():
                flat.grad.zero_()
            zero.averaged_gradients = {}
            return
        zero.micro_step_id = -1
        for n in range(len(zero.bit16_groups)):
            zero.averaged_gradients[n] = zero.all_grad_tensors[n] = None

    def state_dict(self) -> dict[str, Any]:
        """State as in one process, whole on the first one; all processes call this."""
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        of_flat = next(iter(self.state.values()), {})
        moments = [name for name, value in of_flat.items() if _is_moment(value)]
        scalars = {k: torch.tensor(float(v)) for k, v in of_flat.items() if k not in moments}
        state = {}
        for place, parameter in enumerate(self.parameters):
            found = {n: self._keep(safe_get_full_optimizer_state(parameter, n)) for n in moments}
            values: dict[str, Any] = {**scalars, **found}
            if parameter.dtype in (torch.bfloat16, torch.float16):
                values[MASTER] = self._keep(safe_get_full_fp32_param(parameter))
            if values:
                state[place] = values
        places = iter(range(len(self.parameters)))
        groups = [
            {**group, "fused": None, "params": list(islice(places, len(parameters)))}
            for group, parameters in zip(self.param_groups, self.groups, strict=True)
        ]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of one process, each of whose tensors is whole."""
        self._begin(next(iter(state["state"].values()), {}))
        for place, values in state["state"].items():
            for name, value in values.items():
                if _is_moment(value):
                    self._set(self.parameters[place], name, value)
        for group, saved in zip(self.param_groups, state["param_groups"], strict=True):
            group.update({k: v for k, v in saved.items() if k not in ("params", "fused")})

    def _keep(self, whole: Any) -> Tensor | None:
        return whole.cpu() if torch.distributed.get_rank() == 0 else None

    def _begin(self, values: Mapping[str, Any]) -> None:
        """Give every flat tensor a state of the same names, as the first step would."""
        held = "fp32_partitioned_groups_flat" if self.parted else "single_partition_of_fp32_groups"
        for flat in getattr(self.engine.optimizer, held):
            own = self.optimizer.state[flat]
            for name, value in values.items():
                if value is not None and not _is_moment(value):
                    own[name] = torch.tensor(float(value))  # of steps
                elif value is not None and name != MASTER:
                    own.setdefault(name, torch.zeros_like(flat))
        if not self.parted:
            self.engine.optimizer._lazy_init_hp_params_optimizer_state()

    def _set(self, parameter: Any, name: str, value: Tensor) -> None:
        from deepspeed import utils

        which = "local" if self.parted else "full"
        part = slice_whole(value, held_part(parameter)) if which == "local" else value
        if name == MASTER:
            getattr(utils, f"safe_set_{which}_fp32_param")(parameter, part)
        else:
            getattr(utils, f"safe_set_{which}_optimizer_state")(parameter, part, name)


def _is_moment(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0


def own_parameters(model: nn.Module, trained: bool) -> None:
    """Give a model separate parameters, without `trained` frozen, on the storage of those it shares
    with another, which sharding one of them frees for that one alone."""
    fresh: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                own = nn.Parameter(parameter.data, trained and parameter.requires_grad)
                module._parameters[name] = fresh.setdefault(id(parameter), own)
