"""A small random policy of every family, and prompts of every task.

A new family is a function and a line in `POLICIES`; tests over families then cover it.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from PIL import Image
from transformers import PreTrainedTokenizerBase

from mmrl.models import Policy, load_policy
from mmrl.models.families import FAMILIES, lumina
from mmrl.models.image_tokenizers.image_tokenizer import ImageTokenizer
from mmrl.models.layouts.image_chat import SYSTEM
from mmrl.models.layouts.layout_config import LayoutConfig
from mmrl.models.layouts.lumina_rows import ANSWER, DRAW, EDIT
from mmrl.models.loading import build_network
from mmrl.models.policy import build_layouts
from mmrl.types import Prompt
from tests.models.amused import write_amused
from tests.models.causal import write_qwen_vl
from tests.models.llada_tokenizer import SPECIAL_WORDS, character_tokenizer, small_tokenizer
from tests.models.networks import CHAT, CONFIG, LLADA_V, draw_weights, small_magvit

LENGTH = 8
"""Response positions of a text."""
MASKS = ("<|mdm_mask|>", "<|mask|>")
"""Names of the mask token."""
TURNS = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{{ '<|im_start|>assistant\n' }}"
)
"""A chat template with the turns of qwen2's."""
QWEN2 = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
QWEN2 |= {"num_key_value_heads": 2, "intermediate_size": 48, "rope_theta": 10000.0}


def llada_policy() -> Policy:
    """Text alone."""
    return build_policy({**CONFIG, "embedding_size": None}, _with_turns(small_tokenizer()))


def llada_llama_policy() -> Policy:
    """LLaDA under HF-llama's names."""
    text = {key: LLADA_V[key] for key in LLADA_V.keys() - {"vision", "image_grid_pinpoints"}}
    return build_policy({**text, "model_type": "llada"}, _with_turns(small_tokenizer()))


def llada_v_policy() -> Policy:
    """With a vision tower."""
    tokenizer = character_tokenizer([*SPECIAL_WORDS, SYSTEM])  # shorter prompts
    return build_policy(LLADA_V, _with_turns(tokenizer))


def mmada_policy() -> Policy:
    """With an image tokenizer: images are 8 x 8 pixels, 16 codes out of 32."""
    vq = small_magvit()
    draw_weights(vq, 5)
    raw = {"model_type": "mmada", "codebook_size": 32, "num_vq_tokens": 16, "mask_policy": "ignore"}
    tokenizer = _with_turns(small_tokenizer())
    return build_policy({**CONFIG, **raw}, tokenizer, vq, max_prompt_length=64)


def lumina_policy() -> Policy:
    """With an image tokenizer: images are 6 x 8 pixels, 12 codes out of 32 in rows of 4."""
    vq = small_magvit()
    draw_weights(vq, 5)
    marks = ["<system>", "</system>", "<user>", "</user>", DRAW, EDIT, ANSWER]
    last = ["<|boi|>", "<|eoi|>", "<uncondition>", "<|1|>", "<|2|>", "<answer>", "</answer>"]
    tokenizer = character_tokenizer([*marks, *SPECIAL_WORDS, *last])
    raw = {**CONFIG, "architectures": [lumina.ARCHITECTURE]}
    return build_policy(raw, tokenizer, vq, image_size=8, image_height=6)


def amused_policy() -> Policy:
    """diffusers' network, of images of 8 x 8 pixels, 16 codes out of 64."""
    with TemporaryDirectory() as folder:
        return load_policy(write_amused(Path(folder) / "amused"))


def dream_policy() -> Policy:
    """With more embedding rows than tokens."""
    return qwen_policy({"model_type": "Dream"}, spare_rows=5)


def sdar_policy() -> Policy:
    """With attention that is causal between blocks of four positions."""
    return qwen_policy({"model_type": "sdar", "block_size": 4})


def qwen_policy(raw: Mapping[str, Any], spare_rows: int = 0) -> Policy:
    """With sizes and the turns of qwen2's kind."""
    tokenizer = character_tokenizer(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>"])
    tokenizer.chat_template = TURNS
    end = tokenizer.get_vocab()["<|endoftext|>"]
    ends = {"eos_token_id": end, "pad_token_id": end}
    return build_policy({**QWEN2, **ends, **raw}, tokenizer, spare_rows=spare_rows)


def causal_policy() -> Policy:
    """transformers' Qwen3 in miniature, text from left to right."""
    tokenizer = character_tokenizer(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.chat_template, tokenizer.eos_token = TURNS, "<|im_end|>"
    end = tokenizer.get_vocab()["<|im_end|>"]
    raw = {**QWEN2, "model_type": "qwen3", "head_dim": 8, "eos_token_id": end}
    return build_policy({**raw, "tie_word_embeddings": False}, tokenizer, spare_rows=6)


def qwen_vl_policy(family: str) -> Policy:
    """transformers' Qwen-VL in miniature: with a vision tower, from left to right."""
    with TemporaryDirectory() as folder:
        write_qwen_vl(Path(folder), family)
        return load_policy(folder, max_completion_length=LENGTH)


POLICIES: dict[str, Callable[[], Policy]] = {"amused": amused_policy, "causal_lm": causal_policy}
POLICIES |= {"dream": dream_policy, "llada": llada_policy}
POLICIES |= {"llada_llama": llada_llama_policy, "llava_llada": llada_v_policy}
POLICIES |= {"lumina": lumina_policy, "mmada": mmada_policy}
POLICIES |= {"qwen2_5_vl": partial(qwen_vl_policy, "qwen2_5_vl")}
POLICIES |= {"qwen3_vl": partial(qwen_vl_policy, "qwen3_vl"), "sdar": sdar_policy}
"""Small policies by the name of their family in `mmrl.models.families.FAMILIES`."""
PAIRS = [(name, task) for name in sorted(POLICIES) for task in sorted(FAMILIES[name].LAYOUTS)]
"""Every family with every task that it has."""
MASKED_PAIRS = [pair for pair in PAIRS if FAMILIES[pair[0]].KIND == "masked"]
CAUSAL_PAIRS = [pair for pair in PAIRS if FAMILIES[pair[0]].KIND == "causal"]


@cache
def small_policy(family: str) -> Policy:
    """The small policy of a family, built once; tests leave it as it is."""
    if family == "amused":
        pytest.importorskip("diffusers")
    return POLICIES[family]()


def build_policy(
    raw: Mapping[str, Any],
    tokenizer: PreTrainedTokenizerBase,
    vq: ImageTokenizer | None = None,
    spare_rows: int = 0,
    max_prompt_length: int = 400,
    **chosen: Any,
) -> Policy:
    """A policy of random weights, in memory, of a `config.json` but for the size of the vocabulary
    and the id of the mask, with `spare_rows` of the embedding that no token has."""
    words = tokenizer.get_vocab()
    masks = dict.fromkeys(["mask_token_id"], next((words[m] for m in MASKS if m in words), None))
    rows = len(tokenizer) + (0 if vq is None else vq.codebook_size) + spare_rows
    sizes = dict.fromkeys(raw.keys() & {"embedding_size"} | {"vocab_size"}, rows)
    network = build_network({**raw, **sizes, **masks})
    draw_weights(network, 3)
    lengths = {"max_prompt_length": max_prompt_length, "max_completion_length": LENGTH}
    options = LayoutConfig(**lengths, **chosen)
    layouts = build_layouts(network.eval(), tokenizer, options, vq)
    return Policy(network, tokenizer, layouts, network)


def small_prompts(task: str, count: int = 3) -> list[Prompt]:
    """Prompts of different lengths; those with images show some of different sizes and colours."""
    return [
        Prompt(
            id=str(n),
            task=task,
            text="what is it? "[: 12 - 4 * (n % 3)],
            images=[Image.new("RGB", (8 + 4 * n, 8), (80 * n % 256, 90, 30))]
            if task.startswith("image_")
            else None,
        )
        for n in range(count)
    ]


def _with_turns(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    tokenizer.chat_template = CHAT
    return tokenizer
