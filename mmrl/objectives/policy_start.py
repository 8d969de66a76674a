"""What the objectives of a policy share: the checkpoint or new network that they start from, data
that may be streams, and how it is saved."""

from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from mmrl.config import check
from mmrl.data.stream import RowStream, StoredRows
from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer, build_vq, outline_vq
from mmrl.models.layouts.layout_config import LayoutConfig
from mmrl.models.loading import build_network, load_model, new_model, outline, read_config
from mmrl.models.policy import Policy, assemble
from mmrl.models.source import find_directory
from mmrl.objectives.options import StartConfig
from mmrl.pretrained.checks import check_continued, check_patterns
from mmrl.pretrained.known import find_here
from mmrl.pretrained.model_config import ModelConfig
from mmrl.randomness import generator
from mmrl.training.trainable import train_parts

Items = StoredRows[Any] | RowStream[Any]
C = TypeVar("C", bound=StartConfig)


class PolicyObjective(Generic[C]):
    """Data and network of the supervised training of a policy.

    A subclass has `_build(device, deferred)`, which reads `data` and sets `policy` and `module`.

    Attributes:
        data: items by the name of their part; those of the first are counted as epochs.
    """

    policy: Policy
    module: nn.Module
    data: dict[str, Items]

    def __init__(
        self,
        config: C,
        seed: int,
        batch_size: int,
        device: torch.device | str = "cpu",
        deferred: bool = False,
    ) -> None:
        self.config, self.seed, self.batch_size = config, seed, batch_size
        self._build(device, deferred)

    def _build(self, device: torch.device | str, deferred: bool) -> None:
        """See `PolicyObjective`."""
        raise NotImplementedError

    def load_start(self, device: torch.device | str, deferred: bool) -> Any:
        """Load the weights of the outlined policy onto a device, or draw new ones from the seed;
        return the network in training mode.

        Those of a checkpoint are read tensor by tensor in `config.dtype`, so that no process holds
        a copy of them in the memory of the host, or stay unread where that is `deferred`, see
        `load_model`."""
        config, policy = self.config, self.policy
        if config.new_weights:
            draw = generator(self.seed, "initial weights")
            network = new_model(policy.network.public_config, draw).to(device)
        else:
            network = load_model(
                config.model,
                config.dtype,
                device,
                merge_adapter=config.lora is None,  # or the adapter of `model` is continued
                deferred=deferred,
            )
        network.set_attention(config.attn_implementation)
        network.gradient_checkpointing = config.gradient_checkpointing
        policy.network = policy.model = network
        return network.train()

    @property
    def examples_per_epoch(self) -> int | None:
        """Examples of the data; None for a stream."""
        first = next(iter(self.data.values()))
        return len(first.items) if isinstance(first, StoredRows) else None

    def data_state(self) -> dict[str, Any]:
        """Where streams are."""
        streams = {name: each for name, each in self.data.items() if isinstance(each, RowStream)}
        return {name: each.state_dict() for name, each in streams.items()}

    def load_data_state(self, state: dict[str, Any]) -> None:
        """Continue from `data_state()`."""
        for name, each in self.data.items():
            if isinstance(each, RowStream):
                each.load_state_dict(state[name])

    def save(self, directory: Path) -> None:
        """Write network and tokenizer in the public format of their family."""
        self.policy.save(directory, self.config.save_dtype)

    def evaluate(self, directory: Path, step: int) -> dict[str, float]:
        """Nothing beyond the training losses; benchmarks score samples."""
        return {}


def outline_policy(
    config: StartConfig, options: LayoutConfig, vq: ImageTokenizer | None = None
) -> Policy:
    """The policy of an objective, its network without weights on the meta device. Raises
    FileNotFoundError, ValueError: see `load_policy`."""
    directory = find_directory(config.model)
    if config.new_weights:
        with torch.device("meta"):
            network = build_network(read_config(directory))
    else:
        network = outline(directory)
    return assemble(network, directory, options, vq)


def choose_trained(network: Any, config: StartConfig, seed: int = 0) -> nn.Module:
    """Freeze what is not trained, and put the adapter on the network where one is wanted; return
    the network, wrapped where it has an adapter. Raises ConfigError: an adapter that is not that of
    the checkpoint, a pattern that matches nothing, or a tower is to be trained that does not exist.
    """
    tower, allowed = config.train_vision_tower, "false for a network without a vision tower"
    fits = network.sees or not tower
    check(fits, "objective.train_vision_tower", tower, allowed)
    wanted = ModelConfig(
        path=config.model,
        lora=config.lora,
        train_vision_tower=tower,
        modules_to_train=config.modules_to_train,
    )
    check_continued(wanted, "objective")
    check_patterns(network, wanted, "objective")
    for parameter in network.parameters():
        parameter.requires_grad_(parameter.is_floating_point())  # those in 4 bits cannot
    if network.sees:
        network.train_tower(False)
    return train_parts(network, wanted, seed)


def outline_tokenizer(path_or_hub_id: str) -> ImageTokenizer:
    """The image tokenizer `objective.vq` without weights; for one that is only on the hub, the
    public one."""
    directory = find_here("objective.vq", path_or_hub_id)
    if directory is not None:
        return outline_vq(directory)
    with torch.device("meta"):
        return build_vq({})
