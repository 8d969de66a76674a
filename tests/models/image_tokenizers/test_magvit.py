"""MAGVIT-v2 against numbers of the public implementation, and what it refuses.

`tests/fixtures/magvitv2/cases.safetensors` holds inputs and outputs of the public code for a
network of base width 32 whose weights are drawn here: in the order of their sorted names from one
generator with seed 2, norm scales 1 + 0.01 n and everything else 0.05 n, rounded to bfloat16.
`full_size_keys.txt` lists name and shape of every tensor of the full-size network.
"""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Generator, Tensor

from mmrl.models.image_tokenizers.image_tokenizer import load_vq, save_vq
from mmrl.models.image_tokenizers.magvit import MagvitConfig, MagvitV2
from tests.models.networks import FIXTURES, small_magvit

CASES_OF = "magvitv2"
SIZES = ("32x32", "32x64", "64x64")
ROUNDING = 5e-6
"""Of latents of about 0.1 behind twenty float32 convolutions, in another order of sums."""


@pytest.fixture(scope="module")
def public_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in the public format with the weights of the fixture."""
    directory = tmp_path_factory.mktemp("magvitv2")
    tensors = MagvitV2(MagvitConfig(ch=32)).state_dict()
    generator = Generator().manual_seed(2)
    for key in sorted(tensors):
        if not key.startswith("quantize."):
            noise = torch.randn(tensors[key].shape, generator=generator)
            is_scale = "norm" in key and key.endswith("weight")
            value = 1 + 0.01 * noise if is_scale else 0.05 * noise
            tensors[key] = value.to(torch.bfloat16)
    save_file(tensors, directory / "model.safetensors")
    (directory / "config.json").write_text('{"_class_name": "MAGVITv2", "ch": 32, "bits": 13}')
    return directory


@pytest.fixture(scope="module")
def vq(public_directory: Path) -> MagvitV2:
    return load_vq(public_directory)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    save_vq(small_magvit(), tmp_path / "tiny")
    return tmp_path / "tiny"


def test_the_default_network_has_the_public_tensors_in_name_shape_and_order() -> None:
    with torch.device("meta"):
        network = MagvitV2(MagvitConfig())
    ours = [f"{k} {'x'.join(map(str, v.shape))}" for k, v in network.state_dict().items()]
    assert ours == (FIXTURES / CASES_OF / "full_size_keys.txt").read_text().splitlines()
    assert network.state_dict()["quantize.power_vals"].dtype == torch.int64
    assert (network.codebook_size, network.downsample) == (8192, 16)


@pytest.mark.parametrize("size", SIZES)
def test_codes_and_decoded_pixels_equal_those_of_the_public_code(
    vq: MagvitV2, cases: dict[str, Tensor], size: str
) -> None:
    pixels, latent = cases[f"inputs/{size}"], cases[f"outputs/{size}/latent"]
    codes, expected = vq.get_code(pixels), cases[f"outputs/{size}/codes"]
    torch.testing.assert_close(vq.encode(pixels), latent, atol=ROUNDING, rtol=0)
    # a bit is the sign of a channel: one within rounding of zero may fall on either side
    sure = latent.abs() > ROUNDING
    bits = vq.quantize.power_vals[:, None, None] * sure
    bits = bits.sum(1).flatten(1)
    assert torch.equal(codes & bits, expected & bits)
    assert sure.float().mean() > 0.99
    height, width = (int(side) // 16 for side in size.split("x"))
    pixels = vq.decode_code(expected, shape=(height, width))
    assert (pixels - cases[f"outputs/{size}/decode_shape"]).abs().max() < 1e-5


def test_codes_do_not_depend_on_the_precision_of_a_context(
    public_directory: Path, cases: dict[str, Tensor]
) -> None:
    vq = load_vq(public_directory)
    pixels, codes = cases["inputs/64x64"], cases["outputs/64x64/codes"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(vq.get_code(pixels), codes)
        assert vq.decode_code(codes).dtype == torch.float32


def test_saving_and_loading_keeps_every_weight(tmp_path: Path) -> None:
    vq = small_magvit().bfloat16().float()
    save_vq(vq, tmp_path / "stored", dtype="bfloat16")
    stored = load_file(tmp_path / "stored" / "model.safetensors")
    assert stored["encoder.conv_in.weight"].dtype == torch.bfloat16
    loaded = load_vq(tmp_path / "stored")
    assert loaded.config == vq.config
    for key, value in vq.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value), key


def test_pickled_weights_load_and_other_pickles_do_not_run(tiny: Path) -> None:
    tensors = load_file(tiny / "model.safetensors")
    (tiny / "model.safetensors").unlink()
    torch.save(tensors, tiny / "pytorch_model.bin")
    assert load_vq(tiny).codebook_size == 32
    torch.save({"weights": Path("anything")}, tiny / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model\.bin"):
        load_vq(tiny)


def test_another_code_table_is_refused(tiny: Path) -> None:
    tensors = load_file(tiny / "model.safetensors")
    tensors["quantize.embedding"] = tensors["quantize.embedding"].flip(1)
    save_file(tensors, tiny / "model.safetensors")
    with pytest.raises(ValueError, match=r"quantize\.embedding"):
        load_vq(tiny)


@pytest.mark.parametrize(
    ("codes", "shape", "named"),
    [
        (torch.tensor([[0, 1, 2, 32]]), None, "0 to 31"),
        (torch.tensor([[0, -1, 2, 3]]), None, "from -1"),
        (torch.zeros(1, 6, dtype=torch.int64), None, "shape=(height"),
        (torch.zeros(1, 6, dtype=torch.int64), (2, 4), "holds 8"),
    ],
)
def test_codes_that_cannot_be_decoded_are_refused(
    codes: Tensor, shape: tuple[int, int] | None, named: str
) -> None:
    with pytest.raises(ValueError) as caught:
        small_magvit().decode_code(codes, shape=shape)
    assert named in str(caught.value)
