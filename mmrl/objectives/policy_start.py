"""The policy that supervised training starts from: a checkpoint to continue, or a new network."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from mmrl.objectives.masked_config import MaskedConfig
from mmrl.objectives.text_config import CompletionConfig
from mmrl.objectives.text_rows import AnswerLayouts
from mmrl.randomness import generator
from models.families import get_family, llada, llada_v
from models.image_tokenizers.image_tokenizer import ImageTokenizer
from models.layouts.layout_config import LayoutConfig
from models.layouts.question_layout import QuestionLayout
from models.layouts.text_layout import TextLayout
from models.loading import build_network, load_model, new_model, outline
from models.policy import Policy, build_layouts, load_tokenizer
from models.source import find_directory


def outline_policy(
    config: CompletionConfig | MaskedConfig,
    options: LayoutConfig,
    new_config: Callable[[PreTrainedTokenizerBase], dict[str, Any]],
    vq: ImageTokenizer | None = None,
) -> Policy:
    """The policy of an objective, its network without weights on the meta device.

    Args:
        config: names the checkpoint to continue, or the tokenizer of a new network.
        options: of its layouts.
        new_config: config.json of a new network from its tokenizer.
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


def load_start(policy: Policy, model: str, seed: int) -> None:
    """Give an outlined policy the weights of its checkpoint, or new ones drawn from `seed`."""
    config, draw = policy.network.public_config, generator(seed, "initial weights")
    policy.network = load_model(model) if model else new_model(config, draw)
    policy.model = policy.network


def answer_layouts(policy: Policy) -> AnswerLayouts:
    """The layouts that answers are rendered with."""
    text, chat = policy.layouts["text"], policy.layouts.get("image_to_text")
    assert isinstance(text, TextLayout)
    assert chat is None or isinstance(chat, QuestionLayout)
    return AnswerLayouts(text, chat)


def new_text_config(config: CompletionConfig, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """config.json of a new LLaDA-type network, or of LLaDA-V's type where it has a vision tower."""
    core, longest = config.network.core(len(tokenizer)), max(4096, config.max_length)
    tower = config.vision
    if tower is None:
        return llada.public_config(core, tokenizer, longest)
    grids, tiles = tower.image_grid_pinpoints, tower.max_tiles
    return llada_v.public_config(core, tokenizer, longest, tower.tower, grids, tiles)
