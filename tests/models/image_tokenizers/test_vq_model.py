"""diffusers' VQModel as an image tokenizer, against numbers of Lumina-DiMOO's public code."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mmrl.models import load_vq
from mmrl.models.image_tokenizers.image_tokenizer import outline_vq, save_vq
from tests.models.lumina import FIXTURE, write_vq

diffusers = pytest.importorskip("diffusers")


@pytest.fixture(scope="module")
def cases() -> dict[str, Tensor]:
    return load_file(FIXTURE / "vq.safetensors")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vq(tmp_path_factory.mktemp("lumina") / "vqvae")


@pytest.fixture(scope="module")
def vq(directory: Path) -> Any:
    return load_vq(directory)


def test_latents_and_codes_are_those_of_the_public_code(vq: Any, cases: dict[str, Tensor]) -> None:
    pixels = cases["picture/paint"].permute(2, 0, 1)[None].float() / 255
    latents = vq.encode(pixels).latents
    torch.testing.assert_close(latents, cases["paint/latents"], atol=2e-5, rtol=0)
    assert vq.get_code(pixels * 2 - 1).tolist() == [cases["paint/codes"].tolist()]


def test_decoded_pixels_and_bytes_are_those_of_the_public_code(vq: Any, cases: dict) -> None:
    pixels = (vq.decode_code(cases["codes"], (2, 6)) + 1) / 2
    expected = cases["decode/sample/every7"]
    torch.testing.assert_close(pixels.flatten()[::7], expected, atol=2e-5, rtol=0)
    [image] = vq.decode_bytes(cases["codes"], (2, 6))
    difference = (image.permute(1, 2, 0).int() - cases["decode/image"].int()).abs()
    assert difference.max() <= 1 and difference.float().mean() < 1e-3
    alone = vq.decode(cases["codes"].long(), force_not_quantize=True, shape=(1, 2, 6, 4)).sample
    assert torch.equal(vq.decode_code(cases["codes"], (2, 6)), alone * 2 - 1)


def test_rows_are_coded_and_decoded_as_alone_in_any_number(
    vq: Any, cases: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = cases["codes"].repeat(3, 1)
    pixels = vq.decode_code(codes, (2, 6))
    found = vq.get_code(pixels)
    monkeypatch.setattr("mmrl.models.image_tokenizers.vq_model._PIXELS", 1)
    torch.testing.assert_close(vq.decode_code(codes, (2, 6)), pixels, atol=1e-5, rtol=0)
    assert torch.equal(vq.get_code(pixels), found)


def test_a_checkpoint_that_holds_one_is_a_path_to_it(directory: Path, tmp_path: Path) -> None:
    vq = load_vq(directory.parent)
    save_vq(vq, tmp_path / "copy")
    again = load_vq(tmp_path / "copy")
    assert again.to_config() == vq.to_config()
    for name, value in vq.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


def test_keys_that_diffusers_does_not_know_are_named(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    content = json.loads((directory / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**content, "codebook": 3}))
    with pytest.raises(ValueError, match="unexpected keyword argument 'codebook'"):
        outline_vq(tmp_path)
