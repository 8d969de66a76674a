"""The judge in this process: a Qwen2.5-VL network of a few numbers that says what it was built to.

Its blocks add nothing, so a token alone decides on the next one: behind a turn's beginning comes
the reply, behind the reply the end. What it sees still goes through processor and vision tower.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
    Qwen2VLVideoProcessor,
)

from mmrl.config import ConfigError
from mmrl.rewards import build_reward
from mmrl.rewards.http.service import Deadline
from mmrl.rewards.judging.local import LocalJudge
from mmrl.rewards.parsing.images import Files, data_url
from mmrl.types import Sample
from tests.rewards.qwen_tokenizer import SPECIAL, build_tokenizer, tiny_config

REPLY = '{"reason": "as built", "score": 4}'
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for part in m['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}<|im_start|>"
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as the hub has them."""
    folder, words = tmp_path_factory.mktemp("qwen"), build_tokenizer([REPLY])
    ids = {token: words.convert_tokens_to_ids(token) for token in [*SPECIAL, REPLY]}
    sizes = {"vocab_size": len(words), "hidden_size": 32, "intermediate_size": 32}
    sizes |= {"num_hidden_layers": 1, "num_key_value_heads": 2}
    vision = {"hidden_size": 16, "intermediate_size": 16, "out_hidden_size": 32}
    vision["fullatt_block_indexes"] = [0]
    config = tiny_config(Qwen2_5_VLConfig, words, sizes, vision)
    torch.manual_seed(0)
    network = Qwen2_5_VLForConditionalGeneration(config)
    state: dict[str, Any] = dict(network.named_parameters())
    with torch.no_grad():
        for name, weight in state.items():
            if "language_model" in name and ("o_proj" in name or "down_proj" in name):
                weight.zero_()
        [embed] = [weight for name, weight in state.items() if "embed_tokens" in name]
        embed.normal_()
        head = state["lm_head.weight"].zero_()
        for given, said in (("<|im_start|>", REPLY), (REPLY, "<|im_end|>")):
            head[ids[said]] += embed[ids[given]]
    network.generation_config.eos_token_id = ids["<|im_end|>"]
    network.generation_config.pad_token_id = ids["<|endoftext|>"]
    network.save_pretrained(folder)
    images = Qwen2VLImageProcessor(patch_size=14, min_pixels=784, max_pixels=784 * 16)
    Qwen2_5_VLProcessor(images, words, Qwen2VLVideoProcessor(), chat_template=CHAT).save_pretrained(
        folder
    )
    return folder


def judge(model: Path, **options: Any) -> Any:
    entry = {"name": "judge", "backend": "transformers", "model": str(model), "dtype": "float32"}
    return build_reward({**entry, "device": "cpu", "max_tokens": 4, **options})


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "qwen_vl_utils", None)
    with pytest.raises(ConfigError, match=r"qwen_vl_utils is not installed.*\.\[judge\]"):
        judge(tmp_path)


def test_text_and_images_are_judged_here_as_by_a_server(checkpoint: Path, tmp_path: Path) -> None:
    pytest.importorskip("qwen_vl_utils")
    reward = judge(checkpoint, batch_size=2, cache_dir=str(tmp_path))
    picture = Image.new("RGB", (70, 40), "red")
    samples = [
        Sample("what?", "red", images=[picture, picture.rotate(90, expand=True)]),
        Sample("a red page", picture),
        Sample("sum", "words alone"),
    ]
    assert reward(samples) == [4.0, 4.0, 4.0] and reward.ready() == ""
    assert len(list(tmp_path.rglob("*.txt"))) == 3
    again = judge(checkpoint, cache_dir=str(tmp_path))
    again._backend.network = None  # which nothing asks, for all replies are kept
    assert again(samples) == [4.0, 4.0, 4.0]


def test_all_images_of_a_batch_go_through_the_tower_and_a_deadline_holds(checkpoint: Path) -> None:
    pytest.importorskip("qwen_vl_utils")
    local = LocalJudge(str(checkpoint), "cpu", "float32", 3)
    grids: list[Any] = []
    local.network.model.visual.register_forward_hook(
        lambda _, args, kwargs, out: grids.append(kwargs["grid_thw"].tolist()), with_kwargs=True
    )
    sides, files = [(140, 84), (84, 140), (112, 112)], Files(partial(data_url, max_pixels=10**6))
    samples = [
        Sample("", "", images=[Image.new("RGB", size) for size in some])
        for some in (sides[:2], sides[2:], [])
    ]
    requests = [
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        *(
                            {"type": "image_url", "image_url": {"url": url}}
                            for url in files.of_sample(sample)
                        ),
                        {"type": "text", "text": "x" * n},
                    ],
                }
            ],
            "max_tokens": 4,
        }
        for n, sample in enumerate(samples)
    ]
    assert isinstance(local.ask(requests, Deadline(0))[0], TimeoutError) and not grids
    assert local.ask(requests, Deadline(600)) == [REPLY] * 3
    assert [[row[2] * 14, row[1] * 14] for row in grids[0]] == [list(side) for side in sides]


def test_the_probability_of_yes_is_that_of_the_network(checkpoint: Path) -> None:
    pytest.importorskip("qwen_vl_utils")
    local = LocalJudge(str(checkpoint), "cpu", "float32", 2)
    words = {"role": "user", "content": [{"type": "text", "text": "is it red?"}]}
    asked = [{"messages": [words], "logprobs": True, "max_tokens": 1}] * 3
    head, rows = local.network.lm_head.weight, []
    known = local.network.get_input_embeddings().weight
    yes = local.processor.tokenizer.convert_tokens_to_ids(REPLY)
    with torch.no_grad():
        head[yes] *= 0.01  # the reply is no longer certain
        begins = local.processor.tokenizer.convert_tokens_to_ids("<|im_start|>")
        hidden = local.network.model.language_model.norm(known[begins])
        rows = (head @ hidden).softmax(-1)
    local.processor.batch_decode = lambda ids: ["yes" if int(n) == yes else "no" for n in ids]
    found = local.ask(asked, Deadline(10.0))
    assert [float(p) for p in found] == pytest.approx([float(rows[yes])] * 3, rel=1e-4)
    assert 0.001 < float(rows[yes]) < 0.999
