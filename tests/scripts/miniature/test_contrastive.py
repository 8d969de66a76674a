"""Training of a CLIP and its way into the CLIP reward."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from datasets import Dataset, Features, Value
from datasets import Image as ImageFeature
from PIL import Image
from safetensors.torch import load_file

from mmrl.models.image_tokenizers.magvit import MagvitConfig
from mmrl.randomness import generator
from mmrl.rewards import build_reward
from mmrl.types import Sample
from scripts.miniature import CLIP
from scripts.miniature.captions import draw_near_miss
from scripts.miniature.contrastive import Contrastive, ContrastiveConfig
from scripts.miniature.reconstruction import (
    Reconstruction,
    ReconstructionConfig,
    commitment_loss,
    entropy_loss,
)
from tests.mmrl.supervised_runs import NETWORK

COLORS = ("red", "green", "blue", "yellow")
SHAPES = Path(__file__).parents[3] / "datasets" / "shapes" / "checkpoints" / "clip"


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """A parquet of plain pictures, every colour worded in two ways."""
    frames = ("a {} picture", "draw {}")
    rows = [(color, frame.format(color)) for frame in frames for color in COLORS] * 4
    metadata = [{"tag": "colors", "include": [{"class": "picture", "color": c}]} for c, _ in rows]
    columns = {
        "image": [Image.new("RGB", (16, 16), color) for color, _ in rows],
        "prompt": [prompt for _, prompt in rows],
        "metadata": [json.dumps(m) for m in metadata],
    }
    kinds = Features(
        {"image": ImageFeature(), "prompt": Value("string"), "metadata": Value("string")}
    )
    path = tmp_path / "pairs.parquet"
    Dataset.from_dict(columns, features=kinds).to_parquet(str(path))
    return path


def small(folder: Path) -> str:
    """The shipped CLIP's tokenizer, and smaller sizes."""
    shutil.copytree(SHAPES, folder, dirs_exist_ok=True)
    file = folder / "open_clip_config.json"
    sizes = json.loads(file.read_text())
    towers = {"width": 32, "layers": 1}
    sizes["model_cfg"]["vision_cfg"] |= {**towers, "image_size": 16, "head_width": 16}
    sizes["model_cfg"]["text_cfg"] |= {**towers, "heads": 2}
    file.write_text(json.dumps(sizes))
    return str(folder)


def objective(path: Path, batch_size: int = 8, **options: object) -> Contrastive:
    settings = {"network": small(path.with_name("sizes")), "save_dtype": "float32", **options}
    config = ContrastiveConfig(data=str(path), **settings)  # type: ignore[arg-type]
    return CLIP.load()(config, seed=3, batch_size=batch_size)


def test_a_near_miss_differs_in_one_word_or_in_two_that_changed_places() -> None:
    caption = "a red circle and an orange ring"
    draws = generator(0)
    replaced = {
        draw_near_miss(caption, [["circle", "ring", "cross"]], [], draws) for _ in range(30)
    }
    assert replaced == {"a red cross and an orange ring", "a red circle and an orange cross"}
    swapped = draw_near_miss(caption, [], [["red", "orange"]], draws)
    assert swapped == "an orange circle and a red ring"
    assert draw_near_miss("a picture", [["red", "blue"]], [["red", "blue"]], draws) is None


def test_the_loss_is_symmetric_cross_entropy_without_captions_asking_the_same(pairs: Path) -> None:
    trained = objective(pairs, near_misses=1, replace=[list(COLORS)])
    batch = trained.batch(0, 0, 1)
    loss, metrics = trained.loss(batch)
    images = trained.module.encode_image(batch.pixels, normalize=True)
    texts = trained.module.encode_text(batch.tokens, normalize=True)
    logits = (images @ texts.T * trained.module.logit_scale.exp()).tolist()
    count, request = len(batch.pixels), batch.request.tolist()
    total = 0.0
    for i in range(count):
        rivals = [j for j in range(count) if j == i or request[j] != request[i]]
        misses = [count + m for m, owner in enumerate(batch.owner.tolist()) if owner == i]
        per_image = sum(math.exp(logits[i][j]) for j in rivals + misses)
        per_text = sum(math.exp(logits[j][i]) for j in rivals)
        total += 2 * logits[i][i] - math.log(per_image) - math.log(per_text)
    assert len(set(request)) < count, "the batch must hold captions that ask for the same"
    assert len(batch.owner) == count
    assert loss.item() == pytest.approx(-total / (2 * count), abs=1e-5)
    assert 0 <= float(metrics["caption_first"]) <= 1


def test_a_trained_clip_is_saved_so_that_the_reward_tells_right_from_wrong(
    pairs: Path, tmp_path: Path
) -> None:
    trained = objective(pairs)
    optimizer = torch.optim.AdamW(trained.module.parameters(), lr=3e-3)
    for step in range(40):
        loss, _ = trained.loss(trained.batch(step, 0, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    directory = tmp_path / "clip"
    directory.mkdir()
    with torch.no_grad():
        assert trained.evaluate(directory, 40)["eval/loss"] < 0.5
    trained.save(directory)
    reward = build_reward({"name": "clip", "model": str(directory), "device": "cpu"})
    picture = {color: Image.new("RGB", (16, 16), color) for color in COLORS}
    for color in COLORS:
        samples = [Sample(f"a {other} picture", picture[color]) for other in COLORS]
        scores = dict(zip(COLORS, reward(samples), strict=True))
        assert max(scores, key=lambda other: scores[other] or 0.0) == color


FIXTURE = Path(__file__).parents[2] / "fixtures" / "magvitv2" / "cases.safetensors"


@pytest.mark.parametrize("size", ["32x32", "32x64", "64x64"])
def test_quantiser_losses_equal_those_of_the_public_code(size: str) -> None:
    cases = load_file(FIXTURE)
    latent = cases[f"outputs/{size}/latent"]
    commitment = cases[f"outputs/{size}/losses/quantizer_loss"]
    entropy = cases[f"outputs/{size}/losses/entropy_loss"]
    torch.testing.assert_close(0.1 * commitment_loss(latent, beta=0.25), commitment)
    torch.testing.assert_close(0.1 * entropy_loss(latent), entropy, atol=1e-6, rtol=1e-4)


def test_the_examples_of_a_step_do_not_depend_on_the_number_of_ranks(images: Path) -> None:
    options = ReconstructionConfig(data=str(images), image_size=8, network=MagvitConfig(**NETWORK))
    alone = Reconstruction(options, seed=1, batch_size=4)
    shared = Reconstruction(options, seed=1, batch_size=2)
    for step in range(7):
        parts = [shared.batch(step, rank, world_size=2) for rank in range(2)]
        assert torch.equal(alone.batch(step, 0, world_size=1), torch.cat(parts))
