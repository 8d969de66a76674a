"""The public image samplers, token for token, from the same random numbers.

MMaDA's own sampler attends to no padding; MaskGRPO's copies attend to everything. In the last step
the public code leaves a mask in the canvas and returns complete codes; compared are the codes.
"""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from mmrl.samplers import SamplerConfig
from tests.mmrl.canvases import mmada_canvas
from tests.mmrl.samplers.public_samplers import sample_publicly


def settings(name: str, cfg_scale: float, choice_temperature: float = 1.0) -> SamplerConfig:
    own = {"choice_temperature": choice_temperature} if name == "maskgit" else {}
    return SamplerConfig(name=name, steps=6, cfg_scale=cfg_scale, **own)


@pytest.mark.parametrize("cfg_scale", [0.0, 2.0])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_maskgit_is_mmadas_sampler(
    mmada: SimpleNamespace, mmada_cases: dict[str, Tensor], cfg_scale: float, temperature: float
) -> None:
    canvas = mmada_canvas(mmada_cases, masked_padding=True)
    config = settings("maskgit", cfg_scale, temperature)
    done = sample_publicly(mmada, canvas, config).canvas
    codes = done.tokens[done.response].view(2, -1) - done.columns[0]
    assert torch.equal(codes, mmada_cases[f"t2i_generate/cfg{cfg_scale}/T{temperature}"])


@pytest.mark.parametrize("cfg_scale", [0.0, 2.0])
@pytest.mark.parametrize(
    ("name", "public"), [("maskgit", "t2i_generate"), ("emerge", "t2i_generate_emerge")]
)
def test_maskgit_and_emerge_are_mask_grpos_samplers(
    mmada: SimpleNamespace, mmada_cases: dict[str, Tensor], name: str, public: str, cfg_scale: float
) -> None:
    canvas = mmada_canvas(mmada_cases, masked_padding=False)
    done = sample_publicly(mmada, canvas, settings(name, cfg_scale)).canvas
    assert torch.equal(done.tokens, mmada_cases[f"maskgrpo/{public}/cfg{cfg_scale}"])
