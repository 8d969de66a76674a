"""HPSv3 on a Qwen2-VL of a few numbers, against scores of the published code."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor
from transformers import Qwen2VLConfig, Qwen2VLImageProcessorPil

from mmrl.config import ConfigError
from mmrl.rewards import build_reward
from mmrl.rewards.hpsv3 import HPSv3Reward, resize
from mmrl.rewards.networks.hpsv3_network import build_network, rename_weight
from mmrl.rewards.networks.hpsv3_question import QUESTION
from mmrl.types import Sample
from tests.rewards.qwen_tokenizer import SPECIAL, build_tokenizer, tiny_config
from tests.rewards.rounding import up_to_rounding

PROMPTS = ["a red circle", "Two blue squares <|Reward|> <|image_pad|>", "a green star " * 5]
PUBLISHED = [-0.23969045281410217, -0.2193761169910431, -0.26603320240974426]
"""Of `Qwen2VLRewardModelBT` of hpsv3 1.0.0 with its question, its image sizes and transformers
4.45.2, on these weights, images and prompts, whose markers were broken before."""
WIDTH, LAYERS, SEEN = 32, 2, 16
PHRASES = sorted({line.strip() for line in QUESTION.split("\n") if len(line) > 60})
"""Of one token each, so that rows are short."""
TOKENS = 256 + len(SPECIAL) + len(PHRASES)


def published_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of the published checkpoint, with our widths."""
    shapes: dict[str, tuple[int, ...]] = {"visual.patch_embed.proj.weight": (SEEN, 3, 2, 14, 14)}
    shapes |= {"model.embed_tokens.weight": (TOKENS + 1, WIDTH), "model.norm.weight": (WIDTH,)}
    shapes |= {"lm_head.weight": (TOKENS + 1, WIDTH)}

    def linear(name: str, out: int, into: int, bias: bool = True) -> None:
        shapes[f"{name}.weight"] = (out, into)
        if bias:
            shapes[f"{name}.bias"] = (out,)

    def norm(name: str) -> None:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (SEEN,)

    block = "visual.blocks.0"
    norm(f"{block}.norm1")
    norm(f"{block}.norm2")
    linear(f"{block}.attn.qkv", 3 * SEEN, SEEN)
    linear(f"{block}.attn.proj", SEEN, SEEN)
    linear(f"{block}.mlp.fc1", 2 * SEEN, SEEN)
    linear(f"{block}.mlp.fc2", SEEN, 2 * SEEN)
    norm("visual.merger.ln_q")
    linear("visual.merger.mlp.0", 4 * SEEN, 4 * SEEN)
    linear("visual.merger.mlp.2", WIDTH, 4 * SEEN)
    for n in range(LAYERS):
        layer = f"model.layers.{n}"
        linear(f"{layer}.self_attn.q_proj", WIDTH, WIDTH)
        linear(f"{layer}.self_attn.k_proj", WIDTH // 2, WIDTH)
        linear(f"{layer}.self_attn.v_proj", WIDTH // 2, WIDTH)
        linear(f"{layer}.self_attn.o_proj", WIDTH, WIDTH, bias=False)
        linear(f"{layer}.mlp.gate_proj", 48, WIDTH, bias=False)
        linear(f"{layer}.mlp.up_proj", 48, WIDTH, bias=False)
        linear(f"{layer}.mlp.down_proj", WIDTH, 48, bias=False)
        shapes[f"{layer}.input_layernorm.weight"] = (WIDTH,)
        shapes[f"{layer}.post_attention_layernorm.weight"] = (WIDTH,)
    for place, out, into in ((0, 1024, WIDTH), (3, 16, 1024), (5, 2, 16)):
        linear(f"rm_head.{place}", out, into)
    return shapes


def published_weights() -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(0)
    return {
        name: 0.2 * torch.randn(shape, generator=random) + float(name.endswith("norm.weight"))
        for name, shape in sorted(published_shapes().items())
    }


def pictures() -> list[Image.Image]:
    random = np.random.default_rng(0)
    sizes = [(64, 64), (90, 40), (600, 500)]
    return [
        Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))
        for width, height in sizes
    ]


def samples() -> list[Sample]:
    return [Sample(p, image) for p, image in zip(PROMPTS, pictures(), strict=True)]


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The published file, and beside it the parts of the backbone that are no weights."""
    folder, words = tmp_path_factory.mktemp("hpsv3"), build_tokenizer(PHRASES)
    text = {"vocab_size": len(words) + 100, "hidden_size": WIDTH, "intermediate_size": 48}
    text |= {"num_hidden_layers": LAYERS, "num_key_value_heads": 1}
    vision = {"embed_dim": SEEN, "hidden_size": WIDTH, "mlp_ratio": 2}
    tiny_config(Qwen2VLConfig, words, text, vision).save_pretrained(folder)
    words.save_pretrained(folder)
    Qwen2VLImageProcessorPil().save_pretrained(folder)
    save_file(published_weights(), folder / "HPSv3.safetensors")
    paths = {"checkpoint": str(folder), "backbone": str(folder)}
    return {"name": "hpsv3", **paths, "dtype": "float32", "device": "cpu"}


def test_scores_are_those_of_the_published_code(entry: dict) -> None:
    reward: Any = build_reward({**entry, "batch_size": 2, "fill": 2})
    scores = reward(samples())
    assert scores == pytest.approx(PUBLISHED, abs=1e-5)
    assert [reward([row])[0] for row in samples()[:2]] == up_to_rounding(scores[:2])
    assert torch.tensor(scores).std() > 0.01, "random weights must tell pairs apart"


def test_positions_are_plain_as_in_training(entry: dict) -> None:
    reward = build_reward(entry)
    assert isinstance(reward, HPSv3Reward)
    positions: list[Tensor] = []
    reward.network.backbone.language_model.register_forward_pre_hook(
        lambda _, args, given: positions.append(given["position_ids"]), with_kwargs=True
    )
    reward(samples()[:1])
    length = positions[0].shape[-1]
    assert torch.equal(positions[0], torch.arange(length).expand(3, 1, length))


def test_the_question_is_the_published_one() -> None:
    digest = hashlib.sha256(QUESTION.encode()).hexdigest()
    assert digest == "f6ee57479d4e9eee76b49c00dc962e1e696a5a2b3cc32cebd9b1fa76fe27502c"


@pytest.mark.parametrize("size", [(512, 512), (64, 64), (448, 448), (1000, 300), (31, 500)])
def test_images_get_the_size_that_qwen_vl_utils_gives_them(size: tuple[int, int]) -> None:
    qwen_vl_utils = pytest.importorskip("qwen_vl_utils")
    image = Image.effect_noise(size, 50).convert("RGB")
    shown = {"type": "image", "image": image, "min_pixels": 200704, "max_pixels": 200704}
    [wanted], _ = qwen_vl_utils.process_vision_info([{"role": "user", "content": [shown]}])
    assert resize(image).tobytes() == wanted.tobytes() and resize(image).size == wanted.size


def test_published_names_of_both_dialects_become_ours(entry: dict) -> None:
    config = Qwen2VLConfig.from_pretrained(entry["backbone"])
    weights = published_weights()
    newer = {
        name.replace("visual.", "model.visual.", 1)
        if name.startswith("visual.")
        else name.replace("model.", "model.language_model.", 1): value
        for name, value in weights.items()
    }
    for names in (weights, newer):
        network = build_network(names, config, torch.bfloat16, "the checkpoint")
        ours = [rename_weight(name) for name in names if name != "lm_head.weight"]
        assert sorted(ours) == sorted(network.state_dict())  # type: ignore[type-var]
        assert network.backbone.dtype == torch.bfloat16
        assert network.head[0].weight.dtype == torch.float32
    assert all(not parameter.is_meta for parameter in network.parameters())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model.norm.weight": None}, "missing .*language_model.norm.weight"),
        ({"rm_head.7.weight": torch.zeros(1)}, "unexpected .*head.7.weight"),
        ({"rm_head.5.bias": torch.zeros(4)}, "size mismatch for head.5.bias"),
        ({"model.embed_tokens.weight": torch.zeros(TOKENS, WIDTH)}, f"{TOKENS} tokens"),
    ],
)
def test_a_file_of_another_network_is_refused(
    entry: dict, tmp_path: Path, change: dict, said: str
) -> None:
    weights = {**published_weights(), **change}
    kept = {name: value for name, value in weights.items() if value is not None}
    save_file(kept, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match=f"(?s)hpsv3.checkpoint .*other.safetensors.*{said}"):
        build_reward({**entry, "checkpoint": str(tmp_path / "other.safetensors")})


def test_files_and_backbones_of_another_kind_are_named(entry: dict, tmp_path: Path) -> None:
    (tmp_path / "HPSv3.safetensors").write_bytes(b"\x00" * 20)
    with pytest.raises(ValueError, match="not a readable checkpoint"):
        build_reward({**entry, "checkpoint": str(tmp_path)})
    with pytest.raises(FileNotFoundError, match="no HPSv3.safetensors is"):
        build_reward({**entry, "checkpoint": str(tmp_path.parent)})
    config = json.loads((Path(entry["backbone"]) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "qwen3"}))
    with pytest.raises(ConfigError, match="hpsv3.backbone is .*a qwen2_vl, and not a qwen3"):
        build_reward({**entry, "backbone": str(tmp_path)})
    with pytest.raises(ValueError, match="reward 'hpsv3' scores images"):
        build_reward(entry)([Sample("q", "a text")])
