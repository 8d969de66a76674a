"""A policy: the network with its tokenizer, layouts and decoding."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen2Tokenizer

from mmrl.config import ConfigError
from mmrl.models.adapter_weights import ADAPTER_WEIGHTS
from mmrl.models.families import Family, get_family
from mmrl.models.families.family import LayoutInputs, add_missing_tokens, read_number
from mmrl.models.families.pipeline import TOKENIZER, is_pipeline
from mmrl.models.image_tokenizers import (
    KEY,
    OWN_VQ,
    PUBLIC_VQ,
    SUBFOLDER,
    find_vq,
    name_vq,
    resolve_vq,
)
from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer, load_vq
from mmrl.models.layouts.chat_templates import read_template
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.layout_config import LayoutConfig
from mmrl.models.layouts.text_layout import TextLayout
from mmrl.models.loading import load_model, outline, read_network, save_model
from mmrl.models.network.network import Network
from mmrl.models.network.token_network import TokenNetwork
from mmrl.models.quantization_config import QuantizationConfig
from mmrl.models.source import ADAPTER_CONFIG, find_directory, find_whole, read_index
from mmrl.types import Canvas, Completion, Prompt

PADDED = 1024
"""Vocabulary rows beyond the tokenizer: published checkpoints have up to 400, which make their
number a multiple of 64."""


@dataclass
class Policy:
    """What samplers, estimators and the loop need of a model family.

    Attributes:
        model: the network, possibly wrapped (LoRA, distributed training).
        layouts: of each task, by the name prompts carry.
        network: the `Network` itself, also when `model` is wrapped: of tokens or of velocities, by
            the kind of canvases that the layouts make.
        sampling: context around calls of `model` without gradient where processes share one copy
            of its weights; its argument: whether their numbers of calls may differ.
        shares_forwards: whether such a call gathers weights, so that all processes take part.
        long_prompts: see `LayoutOptions`.
        version: updates of its weights since the start of the run.
        engine: what writes its completions in its place, see `mmrl.engines`; None without.
    """

    model: torch.nn.Module
    tokenizer: PreTrainedTokenizerBase
    layouts: Mapping[str, Layout]
    network: Any
    sampling: Callable[[bool], AbstractContextManager[None]] = lambda uneven: nullcontext()
    shares_forwards: bool = False
    long_prompts: str | None = None
    version: int = 0
    engine: Any = None

    def __post_init__(self) -> None:
        for layout in self.layouts.values():  # all of them that have one have the same
            if source := getattr(getattr(layout, "vq", None), "source", None):
                self.tokenizer.init_kwargs[KEY] = source

    @property
    def mask_id(self) -> int:
        """Id of the mask token."""
        return next(iter(self.layouts.values())).ids["mask"]

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self.network.device

    def fits(self, prompt: Prompt, length: int | None = None) -> bool:
        """Whether a prompt is short enough, with `length` response positions or those of its task.
        Raises ValueError: no layout of the checkpoint takes it."""
        return self._layout([prompt]).fits(prompt, length)

    def cuts(self, prompt: Prompt) -> bool:
        """Whether the layout of a prompt leaves out a part of it."""
        return self._layout([prompt]).cuts(prompt)

    def canvas(self, prompts: Sequence[Prompt], length: int | None = None) -> Canvas:
        """Canvases of B prompts of one task with `length` response positions or those of the task,
        on the policy's device, nothing written yet. Images are encoded here, each once. Raises
        ValueError: several tasks, one that this checkpoint lacks, or prompts that are too long."""
        canvas = self._layout(prompts).canvas(prompts, length).to(self.device)
        canvas = canvas.read_metadata([prompt.metadata for prompt in prompts])
        if canvas.features is not None:
            with torch.no_grad():
                canvas.features = canvas.features.compute(self.model)
        return canvas

    def decode(self, canvas: Canvas, prompts: Sequence[Prompt]) -> Sequence[Completion]:
        """Completions of finished canvases; texts begin with the prefill of their prompts."""
        completions = self._layout(prompts).decode(canvas)
        pairs = zip(prompts, completions, strict=True)
        return [p.prefill + each if isinstance(each, str) else each for p, each in pairs]

    def render(self, canvas: Canvas, prompts: Sequence[Prompt]) -> list[Tensor]:
        """Pixels [3, H, W] float32 in [0, 1] of finished latents, with their gradient."""
        return self._layout(prompts).render(canvas)

    def save(
        self,
        directory: str | Path,
        dtype: str | None = None,
        state: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Write network and tokenizer as one public checkpoint directory, or one of PEFT; see
        `save_model`. A diffusers pipeline keeps the tokenizer of its source, in its own folder."""
        save_model(self.network, directory, dtype, state)
        source = None if self.network.source is None else self.network.source.directory
        if source is not None and is_pipeline(source):
            return
        written, options = copy(self.tokenizer), dict(self.tokenizer.init_kwargs)
        if vq := options.pop(KEY, None):
            held = source is not None and Path(vq) == (source / SUBFOLDER).resolve()
            options |= {} if held else {KEY: name_vq(vq, Path(directory))}
        written.init_kwargs = options
        written.save_pretrained(directory)
        for layout in self.layouts.values():
            if (reader := getattr(layout, "reader", None)) is not None:
                reader.processor.save_pretrained(directory)

    def _layout(self, prompts: Sequence[Prompt]) -> Any:
        names = {prompt.task for prompt in prompts}
        if len(names) != 1 or not names <= self.layouts.keys():
            raise ValueError(
                f"prompts of tasks {sorted(names)}; one task at a time out of"
                f" {sorted(self.layouts)} is possible with this checkpoint"
            )
        return self.layouts[names.pop()]


def load_policy(
    path_or_hub_id: str | Path,
    vq: str | Path | None = OWN_VQ,
    dtype: str = "float32",
    device: str | torch.device = "cpu",
    attn_implementation: str = "sdpa",
    train_vision_tower: bool = False,
    merge_adapter: bool = True,
    quantization_config: QuantizationConfig | None = None,
    deferred: bool = False,
    **options: Any,
) -> Policy:
    """A checkpoint of a known family, ready for sampling and training, with the layouts of the
    tasks of its family. What `load_model` takes as well is explained there; `options` are those of
    `LayoutConfig`.

    `vq`: path or hub id of the image tokenizer, in float32; None for text only. A family without
    image codes never loads it. `auto` takes the one that the checkpoint names or holds, else
    showlab/magvitv2. `train_vision_tower`: whether the tower gets gradients; its projector always
    does.

    Raises FileNotFoundError, ValueError: see `load_model` and `load_vq`; also a checkpoint without
    a tokenizer, or settings and files that do not belong together. Raises TypeError: an unknown
    option."""
    choices = LayoutConfig(**options)
    directory = find_directory(path_or_hub_id, left_out=choices.without_parts)
    network = outline(directory, choices.without_parts)
    if train_vision_tower and not network.sees:
        raise ValueError("train_vision_tower is true and the checkpoint has none; set it to false")
    images = None
    if vq is not None and _reads_codes(network):
        if str(vq) == OWN_VQ:
            vq = find_vq((directory, find_whole(directory))) or PUBLIC_VQ
        images = load_vq(vq, device=str(device))
    policy = assemble(network, directory, choices, images)
    if not policy.layouts:
        raise ValueError("vq is null, and this checkpoint does nothing without an image tokenizer")
    # last, because it takes longest: what is wrong with the rest is known by now
    settings = (attn_implementation, merge_adapter, quantization_config, deferred)
    read_network(network, path_or_hub_id, directory, dtype, device, *settings)
    if network.sees:
        network.train_tower(train_vision_tower)
    return policy


def outline_policy(
    directory: Path, options: LayoutConfig, vq: ImageTokenizer | None = None
) -> Policy:
    """The policy of a directory without weights; errors of `load_policy`, as far as headers and the
    tokenizer tell. A family without image codes does not read `vq`, which has no weights either."""
    network = outline(directory, options.without_parts)
    return assemble(network, directory, options, vq if _reads_codes(network) else None)


def assemble(
    network: Network, directory: Path, options: LayoutConfig, vq: ImageTokenizer | None
) -> Policy:
    """The policy of a network, with tokenizer and layouts of its directory. Raises
    FileNotFoundError, ValueError: see `load_policy`."""
    set_blocks(network, options)
    family, template = get_family(network.public_config), options.chat_template
    tokenizer = load_tokenizer(directory, family)
    if isinstance(template, str):
        tokenizer.chat_template = read_template(template)
    elif own := getattr(family, "CHAT_TEMPLATE", None):
        tokenizer.chat_template = own
    try:
        layouts = build_layouts(network, tokenizer, options, vq, directory)
    except ConfigError:
        raise
    except ValueError as error:
        advice = "Copy or download its config.json and tokenizer.json again."
        raise ValueError(f"'{directory}': {error}. {advice}") from error
    return Policy(network, tokenizer, layouts, network, long_prompts=options.long_prompts)


def _reads_codes(network: Network) -> bool:
    """Whether a task of the network's family has images that are codes."""
    layouts = get_family(network.public_config).LAYOUTS.values()
    return any(layout.needs_vq for layout in layouts)


def build_layouts(
    network: Network,
    tokenizer: PreTrainedTokenizerBase,
    options: LayoutConfig,
    vq: ImageTokenizer | None = None,
    directory: Path = Path(),
) -> dict[str, Layout]:
    """The layouts of a checkpoint by task; arguments and errors of `Family.layouts`."""
    inputs = LayoutInputs(network, tokenizer, options, vq, directory)
    layouts = get_family(network.public_config).layouts(inputs)
    if isinstance(network, TokenNetwork):
        check_tokenizer(network, tokenizer, layouts)
    if options.long_prompts != "cut":
        return layouts
    texts = {n: replace(own, cut=True) for n, own in layouts.items() if isinstance(own, TextLayout)}
    return {**layouts, **texts}


def check_tokenizer(
    network: TokenNetwork, tokenizer: PreTrainedTokenizerBase, layouts: Mapping[str, Layout]
) -> None:
    """Compare the tokenizer of a directory with the config.json of its network. Raises ValueError:
    another number of tokens, or special tokens with other ids."""
    config, tokens, rows = network.public_config, len(tokenizer), network.vocab_size
    # of codes, only config.json says where they begin
    coded = _reads_codes(network)
    texts = read_number(config, "llm_vocab_size", tokens if coded else rows)
    padded = texts == tokens or (texts % 8 == 0 and 0 < texts - tokens < PADDED)
    mask = next((layout.ids.get("mask") for layout in layouts.values()), None)
    masks = {None, mask, config.get("mask_token_id")}
    stated = [config.get("eos_token_id"), config.get("pad_token_id")]
    ends = {each for one in stated for each in (one if isinstance(one, list) else [one])} - {None}
    end = layouts["text"].ids["eos"] if "text" in layouts else None
    counted = "llm_vocab_size of config.json" if coded else "vocabulary rows"
    for fits, own, other in (
        (tokens <= rows, f"{tokens} tokens", f"{rows} vocabulary rows"),
        (padded, f"{tokens} tokens", f"{texts} {counted}"),
        (len(masks) < 3, f"the mask {mask}", f"mask_token_id {config.get('mask_token_id')}"),
        (not ends or end in {None, *ends}, f"the end of a text {end}", f"eos and pad id {stated}"),
    ):
        if not fits:
            raise ValueError(
                f"the tokenizer has {own} and the checkpoint has {other}: they do not belong"
                " together"
            )


def set_blocks(network: Network, options: LayoutConfig) -> None:
    """Give the blocks of a block-causal network the size and alignment that the user chose, saved
    with it. Raises ValueError: a size for a network without such blocks."""
    size, alignment = options.block_size, options.block_alignment
    if "block_size" in network.public_config and alignment is not None:
        network.public_config["block_alignment"] = alignment
    if size is None:
        return
    if network.block_size is None:
        raise ValueError(f"block_size is {size} and this checkpoint has no blocks; set it to null")
    network.block_size = size
    network.public_config["block_size"] = size


def load_tokenizer(directory: Path, family: Family | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer of a checkpoint directory, or of a tokenizer alone. An adapter without one has
    that of its base. Special tokens of `family` are added where the published tokenizer lacks them.
    Raises FileNotFoundError: it has none; `load_model` loads the network alone. Raises ValueError:
    it cannot be read, or its special tokens have other ids than the family's."""
    if not (directory / "tokenizer.json").is_file():
        directory = find_whole(directory)
    kind: type[PreTrainedTokenizerBase] = PreTrainedTokenizerFast
    if is_pipeline(directory):
        kind = getattr(transformers, str(read_index(directory).get(TOKENIZER, [""])[-1]), kind)
        directory /= TOKENIZER
    elif not (directory / "tokenizer.json").is_file():
        kind = Qwen2Tokenizer  # Dream's, whose own class is code of its repository
        if not all((directory / name).is_file() for name in ("vocab.json", "merges.txt")):
            raise FileNotFoundError(
                f"{directory} holds no tokenizer.json; load_policy needs one, load_model does not"
            )
    try:
        tokenizer = kind.from_pretrained(directory)
    except Exception as error:  # tokenizers raises bare exceptions for files it cannot parse
        raise ValueError(
            f"the tokenizer of {directory} cannot be read ({error}); copy or download it again"
        ) from error
    if family is not None:
        add_missing_tokens(tokenizer, family.TOKEN_IDS)
    if KEY in tokenizer.init_kwargs:
        tokenizer.init_kwargs[KEY] = resolve_vq(str(tokenizer.init_kwargs[KEY]), directory)
    return tokenizer


def merge_directory(directory: Path, dtype: str, out: Path | None = None) -> None:
    """Add an adapter on disk to the weights of its base, computed in float32 or wider, and write
    the whole model in `dtype` to `out` or in the place of the adapter."""
    network, tokenizer = load_model(directory, dtype), load_tokenizer(directory)
    if out is None:
        for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
            (directory / name).unlink()
    Policy(network, tokenizer, {}, network).save(out or directory)
