"""The protocol of a family of checkpoints, and what its modules share."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from transformers import PreTrainedTokenizerBase

from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer
from mmrl.models.layouts.layout import Layout
from mmrl.models.layouts.layout_config import LayoutConfig
from mmrl.models.network.core import MaskedTokenModel
from mmrl.models.network.core_config import CoreConfig
from mmrl.models.network.network import Network


class LayoutInputs(NamedTuple):
    """What the layouts of a checkpoint are built from: its network, of which the weights are not
    needed, its tokenizer, the options of the user, an image tokenizer or None, and the directory of
    the checkpoint."""

    network: Any
    tokenizer: PreTrainedTokenizerBase
    options: LayoutConfig
    vq: ImageTokenizer | None = None
    directory: Path = Path()


class Family(Protocol):
    """What a module of this folder, or the class in it, provides for the checkpoints of one family.

    `KIND`: the kind of generation of its policies, one of `mmrl.generation.kinds`.
    `KEYS`: own tensor name -> public tensor name; `{i}` is the block number, a final dot marks a
    prefix.
    `TOKEN_IDS`: special tokens of the public vocabulary by name.
    `LAYOUTS`: task -> layout of its prompts, for every task that a checkpoint can do.
    `CHAT_TEMPLATE`, where a module has it: the public code's, in place of the tokenizer's.
    `complete_config(config, directory)`, where a module has it: a config.json with what the public
    files of the family leave out.
    """

    KIND: str
    KEYS: dict[str, str]
    TOKEN_IDS: dict[str, int]
    LAYOUTS: dict[str, type[Layout]]

    def matches(self, config: Mapping[str, Any]) -> bool:
        """Whether the keys of a config.json are those of this family."""
        ...

    def network(self, config: Mapping[str, Any], /) -> Network:
        """The network of a config.json, on the current default device; a ValueError for a variant
        that is not supported."""
        ...

    def layouts(self, inputs: LayoutInputs) -> dict[str, Layout]:
        """The layouts of a checkpoint by task, those of `LAYOUTS` that need no image tokenizer
        without one. Raises ValueError: the inputs do not belong together."""
        ...


def core_alone(
    core_config: Callable[[Mapping[str, Any]], CoreConfig],
) -> Callable[[Mapping[str, Any]], MaskedTokenModel]:
    """`network` of a family whose network is the core of these sizes and nothing else."""
    return lambda config: MaskedTokenModel(core_config(config))


def token_ids(tokenizer: PreTrainedTokenizerBase, names: Mapping[str, str]) -> dict[str, int]:
    """Ids of special tokens by their names, under the same keys. Raises ValueError: the tokenizer
    lacks one."""
    vocabulary = tokenizer.get_vocab()
    absent = sorted(set(names.values()) - vocabulary.keys())
    if absent:
        raise ValueError(f"the tokenizer lacks the special tokens {', '.join(absent)}")
    return {key: vocabulary[name] for key, name in names.items()}


def add_missing_tokens(tokenizer: PreTrainedTokenizerBase, ids: Mapping[str, int]) -> None:
    """Add the special tokens that a tokenizer of the public vocabulary lacks, at their ids; one of
    another vocabulary stays as it is. Raises ValueError: a token would get another id."""
    known = tokenizer.get_vocab()
    if not known.keys() & ids or any(known.get(name, own) != own for name, own in ids.items()):
        return
    for name in sorted(ids.keys() - known.keys(), key=lambda name: ids[name]):
        if len(tokenizer) != ids[name]:
            raise ValueError(
                f"the tokenizer has {len(tokenizer)} tokens and lacks {name}, whose id is"
                f" {ids[name]}; copy the tokenizer of the checkpoint again"
            )
        tokenizer.add_tokens([name], special_tokens=True)


def read_number(
    config: Mapping[str, Any], key: str, default: Any = None, least: float = 1, whole: bool = True
) -> Any:
    """A key of config.json that must be a number from `least`, a count or an id where `whole` is
    true; a ValueError where it is not, or where it is absent or null and has no `default`."""
    value = default if config.get(key) is None else config[key]
    if value is None:
        kind = config.get("model_type")
        raise ValueError(f"config.json lacks {key!r}; the directory is no {kind}-type checkpoint")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not value >= least or (whole and value != int(value)):
        kind = "whole number" if whole else "number"
        raise ValueError(f"config.json: {key} is {value!r}; it must be a {kind} from {least}")
    return int(value) if whole else value


def read_head_dim(config: Mapping[str, Any], width_key: str, heads_key: str) -> int:
    """The width of an attention head; a ValueError where heads do not divide the hidden width."""
    width, heads = read_number(config, width_key), read_number(config, heads_key)
    if width % heads:
        raise ValueError(f"config.json: {width_key} is {width}, no multiple of {heads_key} {heads}")
    return width // heads


def read_sizes(config: Mapping[str, Any], theta: float | None = None, eps: float = 1e-6) -> dict:
    """What `CoreConfig` takes from a config.json with the keys that transformers gives llama and
    qwen, with the defaults of a family; a ValueError where one is missing or does not fit, or where
    it asks for a variant."""
    check_variant(config, {"hidden_act": "silu", "rope_scaling": None, "use_sliding_window": False})
    heads = read_number(config, "num_attention_heads")
    return {
        "hidden_size": read_number(config, "hidden_size"),
        "num_layers": read_number(config, "num_hidden_layers"),
        "num_heads": heads,
        "num_kv_heads": read_number(config, "num_key_value_heads", heads),
        "head_dim": read_number(config, "head_dim", 0, 0)
        or read_head_dim(config, "hidden_size", "num_attention_heads"),
        "mlp_size": read_number(config, "intermediate_size"),
        "vocab_size": read_number(config, "vocab_size"),
        "norm_eps": read_number(config, "rms_norm_eps", eps, 0, whole=False),
        "rope_theta": read_number(config, "rope_theta", theta, whole=False),
        "tied_head": bool(config.get("tie_word_embeddings")),
    }


def check_variant(config: Mapping[str, Any], supported: Mapping[str, Any]) -> None:
    """Raise a ValueError where config.json asks for a variant that no public checkpoint uses."""
    for key, value in supported.items():
        if config.get(key, value) not in (value, None):
            raise ValueError(f"config.json: {key} is {config[key]!r}; only {value!r} is supported")
