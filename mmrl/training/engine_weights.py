"""What an engine gets of a trained policy: whole weights under the names of the checkpoint, an
adapter added to the layers that it changes (as TRL sends them)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mmrl.engines.sampler import connect
from mmrl.models.families import names_of
from mmrl.models.network.network import Network
from mmrl.models.source import LORA
from mmrl.runtime.sharding.sharding import Sharding
from mmrl.runtime.sharding.tensors import gather_whole

if TYPE_CHECKING:
    from mmrl.models import Policy
    from mmrl.training.trainer import Trainer


def connect_engine(policy: Policy, config: Any, trainer: Trainer | None) -> None:
    """Let an engine follow a policy of a run, as `mmrl.engines.sampler.connect` says; one that is
    not trained has no trainer."""
    if trainer is None:
        connect(policy, config)
        return
    sharding, served = trainer.sharding, config.url != ""
    sends = not served or trainer.accelerator.is_main_process
    weights = partial(list_weights, policy.network, sharding, sends)
    connect(policy, config, weights, sends, sleeps=trainer.config.offload)


@torch.no_grad()
def list_weights(
    network: Network, sharding: Sharding, keep: bool, every: bool
) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights, `every` one or those of parts in which something is trained; all processes
    take part, and without `keep` the tensors are only gathered, not yielded."""
    state, names = sharding.weights(network), names_of(network)
    trained = {_plain(name) for name, p in network.named_parameters() if p.requires_grad}
    changed = {_part(names[name]) for name in trained if name in names}
    for name, public in names.items():
        if every or _part(public) in changed:
            found = _merge(network, name, state, sharding.shards, keep)
            if keep:
                yield public, found


def _part(public: str) -> str:
    """What engines store together (q, k and v; gate and up), by the name of a weight: the module
    that holds its layer."""
    return public.rsplit(".", 2)[0]


def _plain(name: str) -> str:
    """The name of a parameter without what peft adds; of a factor that of the weight it changes."""
    layer, factor, _ = name.partition(LORA)
    return f"{layer}.weight" if factor else name.replace(".base_layer.", ".")


def _merge(
    network: Network, name: str, state: Mapping[str, Tensor], shards: bool, keep: bool
) -> Any:
    """A whole weight, with its adapter; None without `keep`."""
    layer, _, part = name.rpartition(".")
    own = state.get(name, state.get(f"{layer}.base_layer.{part}"))
    factors = (
        {k: t for k, t in state.items() if k.startswith(layer + LORA)} if part == "weight" else {}
    )
    found: Any = (gather_whole(t, keep) if shards else t for t in (own, *factors.values()))
    whole, *rest = found
    if not factors or not keep:
        return whole
    given = {
        key.removeprefix(layer + LORA).partition(".")[0]: t
        for key, t in zip(factors, rest, strict=True)
    }
    module: Any = network.get_submodule(layer)
    [scale] = module.scaling.values()
    wide = torch.promote_types(whole.dtype, torch.float32)
    merged = whole.to(wide) + scale * given["B"].to(wide) @ given["A"].to(wide)
    if "magnitude_vector" in given:  # DoRA: the lengths of the rows are trained by themselves
        merged *= (given["magnitude_vector"].to(wide) / merged.norm(dim=1))[:, None]
    return merged.to(whole.dtype)
