"""Configurations as the hub has them: which family they are of, and the tensors that follow.

Sizes and counts are those of the published indices and files.
"""

import json
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from mmrl.models.families import FAMILIES, find_family, get_family, public_names
from mmrl.models.families.family import add_missing_tokens
from mmrl.models.layouts.anyres import read_grids
from mmrl.models.loading import build_network
from tests.models.networks import FIXTURES


def config(name: str) -> dict[str, Any]:
    return json.loads((FIXTURES / "hub" / f"{name}.json").read_text())


LLADA_V = config("llada_v")
"""The keys of the published LLaDA-V that are known; its tower is a path of its authors' machine."""


@pytest.mark.parametrize(
    ("raw", "family", "parameters", "tensors"),
    [
        (config("llada_8b_instruct"), "llada", 8_015_581_184, 291),
        (config("llada_v_language_model"), "llada_llama", 8_015_581_184, 291),
        (LLADA_V, "llava_llada", 8_434_837_024, None),
        (config("mmada_parallel_m") | {"rope_theta": 500000.0}, "mmada", 8_082_690_048, 291),
        # 4,096 codes of speech follow those of images
        (config("omada") | {"rope_theta": 500000.0}, "mmada", 8_116_244_480, 291),
        (config("diffucoder_7b_instruct"), "dream", 7_615_616_512, 339),
        (config("sdar_8b_chat"), "sdar", 8_190_735_360, 399),
    ],
    ids=["llada", "llada-v without its tower", "llada-v", "mmada", "omada", "diffucoder", "sdar"],
)
def test_a_published_configuration_gives_the_published_tensors(
    raw: dict[str, Any], family: str, parameters: int, tensors: int | None
) -> None:
    assert find_family(raw) is FAMILIES[family]
    with torch.device("meta"):
        network = build_network(raw)
    state = network.state_dict()
    assert sum(tensor.numel() for tensor in state.values()) == parameters
    names = public_names(state, network.tied, get_family(raw).KEYS)
    assert tensors is None or len(set(names.values())) == tensors
    first = "model.transformer.wte.weight" if "d_model" in raw else "model.embed_tokens.weight"
    assert names["embed.weight"] == first
    assert {"model.image_newline", "model.mm_projector.2.bias"} <= set(names.values()) or (
        family != "llava_llada"
    )


@pytest.mark.parametrize("value", [[[384, 400]], [[384]], [384], [], None, "(1x1)"], ids=str)
def test_grids_that_are_none_are_named(value: Any) -> None:
    with pytest.raises(ValueError, match=r"image_grid_pinpoints is .*; give"):
        read_grids(value, 384)


def test_keys_decide_and_not_the_name() -> None:
    assert find_family({**config("mmada_parallel_m"), "model_type": "llada"}) is FAMILIES["mmada"]
    assert find_family({**LLADA_V, "model_type": "other"}) is FAMILIES["llava_llada"]
    assert find_family({"model_type": "llada"}) is FAMILIES["llada"]
    for foreign in ({"model_type": "bert", "hidden_size": 8}, {"d_model": 512}, {}):
        assert find_family(foreign) is None


IDS = FAMILIES["llada"].TOKEN_IDS
TURNS = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")


def base_tokenizer(length: int) -> PreTrainedTokenizerFast:
    """One of as many words as asked for, with LLaDA's special tokens but for those of turns."""
    special = {number: name for name, number in IDS.items() if name not in TURNS}
    words = {special.get(n, f"word{n}"): n for n in range(length)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token="word0")))


def test_the_tokenizer_of_the_base_model_gets_the_tokens_of_turns_at_their_ids() -> None:
    tokenizer = base_tokenizer(126346)
    add_missing_tokens(tokenizer, IDS)
    assert tokenizer.get_vocab().items() >= IDS.items() and len(tokenizer) == 126349
    add_missing_tokens(tokenizer, IDS)
    assert len(tokenizer) == 126349, "nothing is added twice"
    text = "<|start_header_id|>user<|end_header_id|>word7<|eot_id|>"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert [ids[0], ids[-1]] == [126346, 126348] and 126347 in ids
