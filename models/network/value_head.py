"""Values: how much reward is still expected, computed from the hidden states of the core.

    V_j = w . h_j        h_j: final hidden state at position j, w: zero at the start, no bias

The diffusion critic of TraceRL (arXiv 2509.06949). The head sits on a copy of the policy.
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.models.network.token_network import TokenNetwork


class ValueHead(nn.Module):
    """A linear map from hidden states of width `size` to one number, zero at the start."""

    def __init__(self, size: int, device: torch.device | str, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, size, device=device, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [...] float32, whatever the precision of the network."""
        with torch.autocast(x.device.type, enabled=False):
            return x.float() @ self.weight[0].float()


class ValueNetwork(nn.Module):
    """A separate network with a value head in place of the output matrix."""

    def __init__(self, backbone: TokenNetwork, head: ValueHead) -> None:
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, **inputs: Any) -> Tensor:
        """Values [N] float32 at the True entries of `positions` [B, L], in row-major order, for the
        inputs of `TokenNetwork.hidden_states`. Embeddings of images are those of the policy, which
        alone is trained to compute them, but for a network that encodes pixels itself."""
        return self.head(self.backbone.hidden_states(**inputs))


def copy_backbone(
    network: TokenNetwork, shared: Mapping[int, Tensor] | None = None
) -> TokenNetwork:
    """A copy of a network, with neither adapters nor wrappers, without its output matrix and vision
    tower; parameters that are `shared`, by `id`, are not copied."""
    without: dict[int, Any] = {**(shared or {}), id(network.head): nn.Identity()}
    if network.vision is not None:
        without[id(network.vision)] = None
    return copy.deepcopy(network, without)
