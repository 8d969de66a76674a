"""The policy of `python -m mmrl.engines.server`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from mmrl.engines.engine import Request
from mmrl.engines.vllm_server import MODE
from mmrl.engines.weight_transfer import Receiver
from mmrl.generation.causal.sampler import append_seeded
from mmrl.models import load_policy
from mmrl.models.families import names_of
from mmrl.runtime.computation import find_device

MOST_ROWS = 256
"""Rows that are written at a time."""


class ServedPolicy:
    """A policy that writes requests, and whose weights are replaced. `version` is that of its
    weights, which are incomplete while it is `updating`."""

    def __init__(self, model: str, dtype: str, device: str) -> None:
        self.policy = load_policy(model, vq=None, dtype=dtype, device=find_device(device))
        self.receiver, self.version = Receiver(self.policy.device), "default"
        network = self.policy.network
        self.weights = {public: network.get_parameter(n) for n, public in names_of(network).items()}
        self.updating = False

    def describe(self) -> dict[str, Any]:
        """See `mmrl.engines.vllm_worker`."""
        return {"config": dict(self.policy.network.public_config), "logprobs_mode": MODE}

    @torch.no_grad()
    def update(self, info: dict[str, Any]) -> None:
        """Replace weights by those of a part. Raises ValueError: a name or a shape that is none of
        the model's; nothing of the part is taken."""
        part = dict(self.receiver.receive(info))
        for name, tensor in part.items():
            if name not in self.weights or self.weights[name].shape != tensor.shape:
                raise ValueError(f"no weight {name!r} of shape {tuple(tensor.shape)} is here")
        for name, tensor in part.items():
            self.weights[name].copy_(tensor)

    def write(self, requests: Sequence[Request]) -> list[dict[str, Any]]:
        """The answers in order, written together where they are to be drawn alike. Raises
        RuntimeError: an update was begun and not finished."""
        if self.updating:
            raise RuntimeError("an update of the weights was not finished")
        alike = dict[Any, list[int]]()
        for place, each in enumerate(requests):
            key = each.max_tokens, each.stop_ids, each.banned, repr(each.config)
            alike.setdefault(key, []).append(place)
        found = dict[int, dict[str, Any]]()
        for places in alike.values():
            for first in range(0, len(places), MOST_ROWS):
                some = places[first : first + MOST_ROWS]
                found |= zip(some, self._write([requests[n] for n in some]), strict=True)
        return [found[place] for place in range(len(requests))]

    def _write(self, requests: Sequence[Request]) -> list[dict[str, Any]]:
        layout: Any = self.policy.layouts["text"]
        first, prompts = requests[0], [each.prompt for each in requests]
        canvas: Any = layout.lay_out(prompts, first.max_tokens)
        canvas = replace(canvas, stop_ids=first.stop_ids, banned=first.banned)
        seeds = [each.seed for each in requests]
        rollout = append_seeded(self.policy, canvas.to(self.policy.device), first.config, seeds)
        parts = zip(rollout.canvas.tokens, rollout.canvas.valid, rollout.logprobs, strict=True)
        return [
            {"token_ids": tokens[own].tolist(), "logprobs": {"token_logprobs": logp[own].tolist()}}
            for tokens, own, logp in parts
        ]
