"""Text encoders of a pipeline that are trained together with its network."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.models.network.pipeline_parts import Encode, build_part
from mmrl.models.network.velocity_network import VelocityNetwork
from mmrl.models.weights import write_weights

DEVIATION = 0.5
"""Of new embeddings. With transformers' 0.02, the words of a text differ little at first from its
positions, and from each other."""


class TextAndNetwork(nn.Module):
    """A velocity network that encodes texts in its forward pass; `encoders` are the text encoders
    that are trained, by name, parts of its pipeline, and `encode` is how its family encodes
    texts."""

    def __init__(
        self, network: VelocityNetwork, encoders: Mapping[str, nn.Module], encode: Encode
    ) -> None:
        super().__init__()
        self.network, self.encode = network, encode
        self.encoders = nn.ModuleDict(dict(encoders)).requires_grad_(True)

    def forward(self, texts: list[str], **inputs: Tensor) -> Tensor:
        """The velocity of `VelocityNetwork.forward`, of B texts in place of what they condition."""
        conditions = self.encode(self.network.parts.encoders, texts, self.network.device)
        return self.network(**inputs, **conditions)

    def save_encoders(self, directory: Path, dtype: torch.dtype) -> None:
        """Write the weights of the text encoders into a copy of the pipeline."""
        for name, encoder in self.encoders.items():
            for file in (directory / name).glob("*.safetensors*"):
                file.unlink()
            tensors = {key: x.to("cpu", dtype) for key, x in encoder.state_dict().items()}
            write_weights(tensors, directory / name)


def list_trained(config: Mapping[str, Any]) -> list[str]:
    """Names of the text encoders of a pipeline that can be trained: CLIP's, which have no dropout
    and are small beside T5, and a UMT5 made without dropout; `config` as of `read_pipeline`."""
    found = [name for name in config if name.startswith("text_encoder")]
    return [name for name in found if _has_no_dropout(config[name])]


def _has_no_dropout(sizes: Mapping[str, Any]) -> bool:
    kind, dropout = sizes["architectures"][0], sizes.get("dropout_rate")
    return "CLIPText" in kind or ("UMT5" in kind and dropout == 0)


def new_encoders(
    config: Mapping[str, Any], names: Sequence[str], seed: int
) -> dict[str, nn.Module]:
    """Text encoders with new weights that depend on the seed only; arguments as of `list_trained`,
    which gives the names."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoders = {name: build_part(config[name]) for name in names}
        for layer in nn.ModuleList(encoders.values()).modules():
            if isinstance(layer, nn.Embedding):
                nn.init.normal_(layer.weight, std=DEVIATION)
    return encoders
