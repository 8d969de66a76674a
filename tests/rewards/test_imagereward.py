"""ImageReward against BLIP's network, written out here from the published names of its weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import init_empty_weights
from PIL import Image
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor
from torch.nn import functional as F
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as TF
from transformers import BertTokenizer

from mmrl.rewards import build_reward
from mmrl.rewards.networks.imagereward_network import (
    TEXT,
    VISION,
    ImageRewardNetwork,
    build_network,
    rename_weight,
)
from mmrl.types import Sample
from tests.rewards.gradients import check_gradient

PROMPTS = ["a red circle", "Two blue squares", "a green star " * 30, ""]
WORDS = ["a", "red", "circle", "two", "blue", "squares", "green", "star", "left", "of", "ring"]
WIDTH, SEEN, LAYERS, SIDE = 128, 64, 2, 32
BLIP_VIT = {"img_size": SIDE, "patch_size": 16, "embed_dim": SEEN, "depth": LAYERS, "num_heads": 1}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The published network with small sizes."""
    wide = {"num_hidden_layers": LAYERS, "num_attention_heads": 1}
    vision = {"hidden_size": SEEN, "intermediate_size": 4 * SEEN, "image_size": SIDE, **wide}
    text = {"vocab_size": 24, "hidden_size": WIDTH, "intermediate_size": 192, **wide}
    text |= {"encoder_hidden_size": SEEN, "num_attention_heads": 2, "max_position_embeddings": 40}
    for published, small in ((VISION, vision), (TEXT, text)):
        for key, value in small.items():
            monkeypatch.setitem(published, key, value)


def image_encoder() -> VisionTransformer:
    """BLIP's image encoder is timm's, with its names."""
    return VisionTransformer(**BLIP_VIT, num_classes=0).eval()  # type: ignore[arg-type]


def text_shapes() -> dict[str, tuple[int, ...]]:
    """Published names and shapes of the text encoder."""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (24, WIDTH),
        "embeddings.position_embeddings.weight": (40, WIDTH),
    }

    def norm(name: str) -> None:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (WIDTH,)

    def linear(name: str, out: int, into: int) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (out, into), (out,)

    norm("embeddings.LayerNorm")
    for n in range(LAYERS):
        for kind, width in (("attention", WIDTH), ("crossattention", SEEN)):
            block = f"encoder.layer.{n}.{kind}"
            linear(f"{block}.self.query", WIDTH, WIDTH)
            linear(f"{block}.self.key", WIDTH, width)
            linear(f"{block}.self.value", WIDTH, width)
            linear(f"{block}.output.dense", WIDTH, WIDTH)
            norm(f"{block}.output.LayerNorm")
        linear(f"encoder.layer.{n}.intermediate.dense", 192, WIDTH)
        linear(f"encoder.layer.{n}.output.dense", WIDTH, 192)
        norm(f"encoder.layer.{n}.output.LayerNorm")
    return shapes


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    """Every weight of the network under its published name, at random."""
    shapes = {f"blip.text_encoder.{name}": shape for name, shape in text_shapes().items()}
    for name, value in image_encoder().state_dict().items():
        shapes[f"blip.visual_encoder.{name}"] = tuple(value.shape)
    sizes = (WIDTH, 1024, 128, 64, 16, 1)
    for place, a, b in zip((0, 2, 4, 6, 7), sizes, sizes[1:], strict=False):
        shapes[f"mlp.layers.{place}.weight"], shapes[f"mlp.layers.{place}.bias"] = (b, a), (b,)
    random = torch.Generator().manual_seed(0)
    return {
        name: (0.1 * torch.randn(shape, generator=random))
        + (1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0)
        for name, shape in shapes.items()
    }


@pytest.fixture(scope="module")
def entry(weights: dict[str, Tensor], tmp_path_factory: pytest.TempPathFactory) -> dict:
    """A checkpoint with what the published one has beside the network, and a tokenizer."""
    directory = tmp_path_factory.mktemp("imagereward")
    beside = {
        "blip.vision_proj.weight": torch.zeros(4, SEEN),
        "blip.text_proj.bias": torch.zeros(4),
        "blip.text_encoder.embeddings.position_ids": torch.arange(40)[None],
    }
    torch.save({**weights, **beside}, directory / "ImageReward.pt")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: n for n, word in enumerate([*special, *WORDS])}
    BertTokenizer(vocab=vocabulary).save_pretrained(directory / "tokenizer")
    paths = {"checkpoint": str(directory), "tokenizer": str(directory / "tokenizer")}
    return {"name": "imagereward", "device": "cpu", **paths}


def samples_of(pictures: list[Image.Image]) -> list[Sample]:
    return [Sample(p, image) for p, image in zip(PROMPTS, pictures, strict=True)]


def expected_score(weights: dict[str, Tensor], image: Image.Image, prompt: str) -> float:
    """The published formula for one image."""
    encoder = image_encoder()
    prefix = "blip.visual_encoder."
    encoder.load_state_dict({k[len(prefix) :]: v for k, v in weights.items() if prefix in k})
    small = TF.center_crop(TF.resize(image, [SIDE], InterpolationMode.BICUBIC), [SIDE])
    mean, std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    with torch.no_grad():
        seen = encoder.forward_features(TF.normalize(TF.to_tensor(small), mean, std)[None])[0]
    known = {word: n for n, word in enumerate(WORDS, start=5)}
    tokens = [2, *[known[word] for word in prompt.lower().split()][:33], 3]
    state = read(weights, torch.tensor(tokens), seen)[0]
    for place in (0, 2, 4, 6, 7):
        state = (
            state @ weights[f"mlp.layers.{place}.weight"].T + weights[f"mlp.layers.{place}.bias"]
        )
    return (state.item() - 0.16717362830052426) / 1.0333394966054072


def read(weights: dict[str, Tensor], tokens: Tensor, seen: Tensor) -> Tensor:
    """BERT without types of tokens, every layer attending to the image between its halves."""

    def of(name: str) -> tuple[Tensor, Tensor]:
        return tuple(weights[f"blip.text_encoder.{name}.{part}"] for part in ("weight", "bias"))  # type: ignore[return-value]

    def linear(name: str, x: Tensor) -> Tensor:
        return F.linear(x, *of(name))

    def norm(name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, (WIDTH,), *of(name), eps=1e-12)

    def attention(name: str, x: Tensor, source: Tensor) -> Tensor:
        heads = [
            linear(f"{name}.self.{part}", rows).unflatten(-1, (-1, 64)).transpose(0, 1)
            for part, rows in (("query", x), ("key", source), ("value", source))
        ]
        mixed = F.scaled_dot_product_attention(*heads).transpose(0, 1).flatten(1)
        return norm(f"{name}.output.LayerNorm", linear(f"{name}.output.dense", mixed) + x)

    table = "blip.text_encoder.embeddings.{}_embeddings.weight"
    x = weights[table.format("word")][tokens] + weights[table.format("position")][: len(tokens)]
    x = norm("embeddings.LayerNorm", x)
    for n in range(LAYERS):
        layer = f"encoder.layer.{n}"
        x = attention(f"{layer}.attention", x, x)
        x = attention(f"{layer}.crossattention", x, seen)
        grown = F.gelu(linear(f"{layer}.intermediate.dense", x))
        x = norm(f"{layer}.output.LayerNorm", linear(f"{layer}.output.dense", grown) + x)
    return x


def test_the_score_is_the_published_formula(
    entry: dict, weights: dict[str, Tensor], pictures: list[Image.Image]
) -> None:
    rows = samples_of(pictures)
    expected = [expected_score(weights, row.completion, row.prompt) for row in rows]  # type: ignore[arg-type]
    scores = torch.tensor(build_reward(entry)(rows))
    torch.testing.assert_close(scores, torch.tensor(expected), atol=1e-4, rtol=0)
    assert scores.std() > 1e-3, "random weights must tell pairs apart"


def test_published_names_and_ours_are_a_bijection(weights: dict[str, Tensor]) -> None:
    ours = [rename_weight(name) for name in weights]
    assert len(set(ours)) == len(ours)
    assert set(ours) == set(build_network(weights, "the checkpoint").state_dict())


def test_incomplete_and_foreign_checkpoints_are_named(
    entry: dict, weights: dict[str, Tensor], tmp_path: Path
) -> None:
    path = tmp_path / "ImageReward.pt"
    for kept, message in (
        ({k: v for k, v in weights.items() if "crossattention.self.query" not in k}, "missing"),
        ({**weights, "blip.text_encoder.extra": torch.zeros(1)}, "unexpected.*text.extra"),
        ({"state": torch.zeros(1)}, "is no ImageReward network: missing"),
    ):
        torch.save(kept, path)
        with pytest.raises(ValueError, match=f"imagereward.checkpoint.*{message}"):
            build_reward({**entry, "checkpoint": str(path)})
    torch.save({**weights, "x": Path("anything")}, path)
    with pytest.raises(ValueError, match="imagereward.checkpoint.*not a readable checkpoint"):
        build_reward({**entry, "checkpoint": str(path)})


def test_the_sizes_are_those_of_the_published_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with init_empty_weights():
        network = ImageRewardNetwork()
    vision, text = network.vision.config, network.text.config
    assert (vision.hidden_size, vision.num_hidden_layers, vision.hidden_act) == (1024, 24, "gelu")
    assert (text.hidden_size, text.num_hidden_layers, text.hidden_act) == (768, 12, "gelu")
    assert (text.vocab_size, text.intermediate_size, text.layer_norm_eps) == (30524, 3072, 1e-12)
    assert text.max_position_embeddings == 512 and network.layers[0].in_features == 768


def test_the_score_of_pixels_is_that_of_the_image_and_has_a_gradient(
    entry: dict, pictures: list[Image.Image]
) -> None:
    reward: Any = build_reward(entry)
    check_gradient(reward, PROMPTS, pictures, reward._network.vision.config.image_size)
