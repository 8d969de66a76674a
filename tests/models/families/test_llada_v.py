"""The network of LLaDA-V: logits and features of the public code, and the public directory format.

Tiles, places and the splicing are exact. Sums of products differ in their last bits between
processors; features are therefore compared up to rounding with the public code, and bit for bit
with transformers' tower on the same machine.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from mmrl.generation.tokens.features import PromptImage
from mmrl.models import load_model
from mmrl.models.network.core import MaskedTokenModel
from mmrl.models.network.vision import Vision
from tests.models.kept_bytes import count_kept
from tests.models.networks import FIXTURES, write_llada_v

CASES_OF = "llada_v"
TOKENS = json.loads((FIXTURES / "llada_v" / "tokens.json").read_text())


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_llada_v(tmp_path_factory.mktemp("llada_v"))


@pytest.fixture(scope="module")
def model(directory: Path) -> MaskedTokenModel:
    return load_model(directory)


def eyes(model: MaskedTokenModel) -> Vision:
    assert isinstance(model.vision, Vision)
    return model.vision


def pictured(model: MaskedTokenModel, image: Tensor) -> tuple[Tensor, list[PromptImage]]:
    """Tiles of an image [H, W, 3], and what there is to know of it."""
    tiling, height, width = eyes(model).tiling, *image.shape[:2]
    shown = PromptImage(width, height, tiling.count(width, height), tiling.rows(width, height))
    return tiling.cut(Image.fromarray(image.numpy())), [shown]


@pytest.mark.parametrize("case", ["nomask", "rightpad"])
@torch.no_grad()
def test_logits_are_those_of_the_public_code(
    case: str, model: MaskedTokenModel, cases: dict[str, Tensor]
) -> None:
    keep = torch.tensor(TOKENS["rightpad"]) if case == "rightpad" else None
    ids = torch.tensor([TOKENS["ids"]] * (1 if keep is None else 2))
    logits = model(input_ids=ids, attention_mask=keep).logits
    expected = cases[f"logits/{case}/every997"]
    torch.testing.assert_close(logits[..., ::997], expected, atol=2e-5, rtol=0)
    assert torch.equal(logits.argmax(-1), torch.tensor(TOKENS["argmax"][case]))


@pytest.mark.parametrize("name", ["300x200", "384x384"])
@torch.no_grad()
def test_prompts_with_an_image_are_the_public_codes_embeddings(
    name: str, model: MaskedTokenModel, cases: dict[str, Tensor]
) -> None:
    tiles, shown = pictured(model, cases[f"{name}/image"])
    seen = model(images=tiles, shown=shown)
    count = shown[0].rows
    ids = torch.tensor([[126080, 500, *[0] * count, 501, 502]])
    at = torch.tensor([[-1, -1, *range(count), -1, -1]])
    read: list[Tensor] = []
    hook = model.blocks[0].register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    model(input_ids=ids, features=seen.rows, feature_at=at, positions=at == 0)
    hook.remove()
    [embeds], expected = read[0], cases[f"{name}/embeds/every7"]
    torch.testing.assert_close(embeds[::7], expected, atol=1e-5, rtol=0)
    given = at[0] < 0
    assert torch.equal(embeds[given], model.embed(ids[0, given]))
    assert torch.equal(embeds[~given], seen.rows)
    ends = 2 + 729 + torch.arange(count - 729)[27::28]
    assert torch.equal(embeds[ends], cases["newline"].expand(len(ends), -1))


@torch.no_grad()
def test_states_are_those_of_transformers_tower_bit_for_bit(
    model: MaskedTokenModel, cases: dict[str, Tensor]
) -> None:
    tower = eyes(model).tower
    tower.embeddings.position_ids = torch.arange(729)[None]
    tiles, shown = pictured(model, cases["300x200/image"])
    pixels = tiles.double().mul(1 / 255).float().sub(0.5).div(0.5)
    states = tower(pixel_values=pixels, output_hidden_states=True).hidden_states
    tower.embeddings.position_ids = None
    assert len(states) == 3
    assert torch.equal(model(images=tiles, shown=shown).source, states[-1])


@pytest.mark.parametrize("trained", [True, False])
def test_what_a_tower_keeps_is_counted(directory: Path, trained: bool) -> None:
    model: Any = load_model(directory)
    model.train_tower(trained)
    tiles, shown = pictured(model, torch.zeros(30, 40, 3, dtype=torch.uint8))
    counted, _ = model.count_images(shown[0].rows, recompute=False, size=4)
    assert 0.7 < counted / count_kept(model, lambda: eyes(model)(tiles, shown)) < 1.4
    again, _ = model.count_images(shown[0].rows, recompute=True, size=4)
    assert (again < counted / 3) == trained
