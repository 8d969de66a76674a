"""Networks small enough for tests, and the numbers of the public code that belong to them.

`tests/fixtures/llada` is a LLaDA-type checkpoint of random weights with logits of the public code.
`tests/fixtures/mmada` is one of MMaDA type; of its 134,656 embedding and head rows only those that
the cases touch are stored (`rows`), and the others are zero.
`tests/fixtures/llada_v` belongs to one of LLaDA-V type whose weights follow from a seed.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Generator
from transformers import PreTrainedTokenizerBase

from mmrl.models.families import llada, llada_v, public_names
from mmrl.models.families.family import LayoutInputs
from mmrl.models.families.llada import KEYS
from mmrl.models.image_tokenizers.image_tokenizer import save_vq
from mmrl.models.image_tokenizers.magvit import MagvitConfig, MagvitV2
from mmrl.models.layouts.layout_config import LayoutConfig
from mmrl.models.layouts.text_layout import TextLayout
from mmrl.models.loading import build_network, save_model
from mmrl.models.network.core import MaskedTokenModel
from tests.models.llada_tokenizer import small_tokenizer

FIXTURES = Path(__file__).parents[1] / "fixtures"
CONFIG = {"model_type": "llada", "d_model": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 4}
CONFIG |= {"mlp_hidden_size": 48, "vocab_size": 40, "embedding_size": 40, "rope_theta": 10000.0}
CONFIG |= {"mask_token_id": 39}


def small_network(seed: int = 0, **changes: object) -> MaskedTokenModel:
    """A random network whose predictions are far from uniform."""
    generator = Generator().manual_seed(seed)
    model = MaskedTokenModel(replace(llada.core_config(CONFIG), **changes))  # type: ignore[arg-type]
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 or name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.25, generator=generator)
    with torch.no_grad():
        model.head.weight.mul_(2.0)
    model.public_config = dict(CONFIG)
    return model.eval()


def bare_policy(model: torch.nn.Module) -> SimpleNamespace:
    """What samplers and scoring use of a policy."""
    return SimpleNamespace(model=model, network=model, shares_forwards=False, version=0)


def write_mmada(directory: Path) -> Path:
    """Write the MMaDA fixture as a checkpoint directory in the public format, without tokenizer."""
    tensors = load_file(FIXTURES / "mmada" / "model.safetensors")
    rows = tensors.pop("rows")
    for name in (KEYS["embed.weight"], KEYS["head.weight"]):
        stored = tensors[name]
        tensors[name] = stored.new_zeros(134656, stored.shape[1]).index_copy_(0, rows, stored)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(FIXTURES / "mmada" / "config.json", directory)
    return directory


TEXT_NETWORKS: dict[str, dict] = {
    "llada_generate": {"seed": 51, "sizes": {"vocab_size": 126464}, "spread": (0.25, 0.05)},
    "mmada_maskgrpo": {"seed": 5, "sizes": {"vocab_size": 134656}, "spread": (0.25, 0.05)},
    "llada_cached": {
        "seed": 11,
        "sizes": {"vocab_size": 512, "hidden_size": 64, "head_dim": 16, "num_heads": 4}
        | {"num_kv_heads": 4, "num_layers": 3, "mlp_size": 160},
        "spread": (0.3, 0.06),
    },
}
"""Networks that the public text samplers were run with: seed, sizes, deviation of matrices and of
norms around 1."""


def drawn_network(name: str, dtype: torch.dtype = torch.float32) -> MaskedTokenModel:
    """A network of `TEXT_NETWORKS`.

    The weights follow from the seed, since those of a public vocabulary are too large to store: one
    stream of normal numbers over the public tensor names in alphabetical order, in bfloat16.
    """
    seed, sizes, (matrices, norms) = TEXT_NETWORKS[name].values()
    small = {"hidden_size": 16, "num_heads": 2, "num_kv_heads": 2, "rope_theta": 500000.0}
    model = MaskedTokenModel(replace(llada.core_config(CONFIG), **{**small, **sizes}))
    names = public_names(model.state_dict(), model.tied, KEYS)
    draw, state = Generator().manual_seed(seed), model.state_dict()
    for key in sorted(names, key=names.__getitem__):
        numbers = torch.randn(state[key].shape, generator=draw)
        numbers = 1 + norms * numbers if numbers.ndim == 1 else matrices * numbers
        state[key].copy_(numbers.bfloat16())
    return model.to(dtype).eval()


def write_llada_v(directory: Path) -> Path:
    """Write the LLaDA-V fixture as a checkpoint directory in the public format, without tokenizer.

    One stream of normal numbers over the public tensor names in alphabetical order, in bfloat16;
    the newline vector is stored.
    """
    config = json.loads((FIXTURES / "llada_v" / "config.json").read_text())
    with torch.device("meta"):
        model = llada_v.network(config)
    state, draw = model.state_dict(), Generator().manual_seed(21)
    names = public_names(state, model.tied, llada_v.KEYS)
    tensors = {}
    for key in sorted(names, key=names.__getitem__):
        numbers = torch.randn(state[key].shape, generator=draw)
        norm = numbers.ndim == 1 and not key.endswith("bias")
        numbers = 1 + 0.04 * numbers if norm else 0.2 * numbers
        tensors[names[key]] = numbers.bfloat16()
    stored = load_file(FIXTURES / "llada_v" / "cases.safetensors")
    tensors["model.image_newline"] = stored["newline"]
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(FIXTURES / "llada_v" / "config.json", directory)
    return directory


LLADA_V = {
    "model_type": "llava_llada",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "rope_theta": 10000.0,
    "vision": {"hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 3}
    | {"num_attention_heads": 2, "image_size": 8, "patch_size": 4},
    "image_grid_pinpoints": "(1x1),...,(2x2)",
}


def text_layout(tokenizer: PreTrainedTokenizerBase, **options: Any) -> TextLayout:
    """The text layout of LLaDA's family."""
    network: Any = None  # which no text depends on
    return llada.text_layout(LayoutInputs(network, tokenizer, LayoutConfig(**options)))


CHAT = (
    "{{ '<|startoftext|>' }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] +"
    " '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
)
"""LLaDA's chat template."""


def write_small_llada_v(directory: Path) -> Path:
    """Write a LLaDA-V-type checkpoint with tokenizer whose predictions depend on what it sees."""
    tokenizer = small_tokenizer()
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(directory)
    config = {**LLADA_V, "vocab_size": len(tokenizer)}
    model = build_network(config)
    draw_weights(model, 3)
    save_model(model, directory)
    return directory


def draw_weights(network: torch.nn.Module, seed: int) -> None:
    """Random weights whose predictions are far from uniform."""
    draw = Generator().manual_seed(seed)
    for name, parameter in network.named_parameters():
        if parameter.ndim > 1 or name.endswith(("bias", "newline")):
            torch.nn.init.normal_(parameter, std=0.25, generator=draw)


def small_magvit() -> MagvitV2:
    """A MAGVIT-v2 of 32 codes that show 2 x 2 pixels."""
    levels = {f"{side}_ch_mult": [1, 2] for side in ("encoder", "decoder")}
    levels |= {f"{side}_num_res_blocks": [1, 1] for side in ("encoder", "decoder")}
    return MagvitV2(MagvitConfig(ch=4, bits=5, norm_groups=2, **levels))


def write_small_mmada(directory: Path) -> Path:
    """Write a MMaDA-type checkpoint with tokenizer whose predictions depend on what it is shown,
    its image tokenizer in the folder `vq`; images are 8 x 8 pixels, 16 codes out of 32."""
    tokenizer = small_tokenizer()
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(directory)
    vq = small_magvit()
    draw = Generator().manual_seed(5)
    for parameter in vq.parameters():
        torch.nn.init.normal_(parameter, std=0.5, generator=draw)
    save_vq(vq, directory / "vq")
    model = small_network(seed=4, vocab_size=len(tokenizer) + vq.codebook_size)
    sizes = {key: model.core.vocab_size for key in ("vocab_size", "embedding_size")}
    model.public_config = {
        **CONFIG,
        **sizes,
        "model_type": "mmada",
        "num_vq_tokens": 16,
        "mask_policy": "ignore",
        "codebook_size": vq.codebook_size,
        "mask_token_id": tokenizer.get_vocab()["<|mdm_mask|>"],
    }
    save_model(model, directory)
    return directory
