"""The policy that supervised training starts from: a checkpoint, or a new network."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from mmrl.models.families import get_family
from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer, build_vq, outline_vq
from mmrl.models.layouts.layout_config import LayoutConfig
from mmrl.models.loading import build_network, load_model, new_model, outline
from mmrl.models.network.network import Network
from mmrl.models.network.vision import Vision
from mmrl.models.policy import Policy, build_layouts, load_tokenizer
from mmrl.models.source import find_directory
from mmrl.objectives.objective import find_outline
from mmrl.objectives.start_config import StartConfig
from mmrl.pretrained.checks import check_continued, check_patterns
from mmrl.pretrained.model_config import ModelConfig
from mmrl.randomness import generator
from mmrl.training.trainable import require_gradients, train_parts


def outline_policy(
    config: StartConfig,
    options: LayoutConfig,
    new_config: Callable[[PreTrainedTokenizerBase], dict[str, Any]],
    vq: ImageTokenizer | None = None,
) -> Policy:
    """The policy of an objective, its network without weights on the meta device.

    Args:
        config: names the checkpoint to continue from, or the tokenizer of a new network.
        options: of its layouts.
        new_config: builds the config.json of a new network from its tokenizer.
        vq: image tokenizer.

    Raises:
        FileNotFoundError, ValueError: see `load_policy`.
    """
    directory = find_directory(config.model) if config.model else Path(config.tokenizer)
    if config.model:
        network = outline(directory)
        tokenizer = load_tokenizer(directory, get_family(network.public_config))
    else:
        tokenizer = load_tokenizer(directory.expanduser())
        with torch.device("meta"):
            network = build_network(new_config(tokenizer))
    return Policy(network, tokenizer, build_layouts(network, tokenizer, options, vq), network)


def load_start(
    policy: Policy,
    config: StartConfig,
    seed: int,
    device: torch.device | str,
    deferred: bool = False,
) -> Network:
    """Load the weights of an outlined policy onto a device, or draw new ones from `seed`.

    Those of a checkpoint are read tensor by tensor in `config.dtype`, so that no process holds a
    copy of them in the memory of the host, or stay unread where that is `deferred`, see
    `load_model`.

    Returns:
        The network, in training mode.
    """
    if config.model:
        network = load_model(
            config.model,
            config.dtype,
            device,
            merge_adapter=config.lora is None,  # or the adapter that `model` may be is continued
            quantization_config=config.quantization_config,
            deferred=deferred,
        )
    else:
        draw = generator(seed, "initial weights")
        network = new_model(policy.network.public_config, draw).to(device)
    network.set_attention(config.attn_implementation)
    network.gradient_checkpointing = config.gradient_checkpointing
    policy.network = policy.model = network
    return network.train()


def choose_trained(network: Network, config: StartConfig, seed: int = 0, **parts: Any) -> None:
    """Freeze what is not trained, and put the adapter on the network where one is wanted.

    Args:
        network: outlined or loaded.
        config: the adapter.
        seed: of a new adapter.
        parts: `train_vision_tower` and `modules_to_train`, see `ModelConfig`.

    Raises:
        ConfigError: an adapter that is not that of the checkpoint, or a pattern matches nothing.
    """
    lora, packed = config.lora, config.quantization_config
    wanted = ModelConfig(path=config.model, lora=lora, quantization_config=packed, **parts)
    check_continued(wanted, "objective")
    check_patterns(network, wanted, "objective")
    require_gradients(network)
    if isinstance(network.vision, Vision):
        network.vision.train_tower(False)
    train_parts(network, wanted, seed)


def outline_tokenizer(path_or_hub_id: str) -> ImageTokenizer:
    """The image tokenizer `objective.vq` without weights; for one that is only on the hub, the
    public one."""
    vq = find_outline("objective.vq", path_or_hub_id, outline_vq)
    if vq is None:
        with torch.device("meta"):
            vq = build_vq({})
    return vq
