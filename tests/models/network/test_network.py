"""What is asked of a network: one of a few lines is a policy."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from mmrl.config import ConfigError
from mmrl.estimators import score
from mmrl.generation.masked.strategies.strategy import passes_of
from mmrl.models import Policy
from mmrl.models.network.network import Network
from mmrl.models.quantization import list_quantized
from mmrl.pretrained.checks import check_sampling
from mmrl.pretrained.known import Known
from mmrl.pretrained.model_config import ModelConfig
from mmrl.samplers import SamplerConfig, sample
from tests.mmrl.canvases import generators, small_canvas

PAGE = Path(__file__).parents[3] / "docs" / "how_to" / "network.md"


@pytest.fixture
def network() -> Network:
    """The network of the page about bringing one."""
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    torch.manual_seed(0)
    return names["BagOfTokens"](40, 8, 16).eval()


def test_a_network_of_a_few_lines_samples_and_is_scored(network: Network) -> None:
    policy = Policy(network, None, {}, network)  # type: ignore[arg-type]
    settings = SamplerConfig(name="maskgit", steps=3, cfg_scale=1.0)
    rollout = sample(policy, small_canvas(), settings, generators(3))
    assert not bool(rollout.canvas.masked.any())
    alone = sample(policy, small_canvas()[:1], settings, generators(3)[:1])
    assert torch.equal(alone.canvas.tokens, rollout.canvas.tokens[:1])

    passes = passes_of(rollout.canvas, [rollout.canvas.response])
    scores = score(policy, rollout.canvas, passes).logprobs
    scores.sum().backward()
    assert bool((scores[passes.scored] < 0).all())
    assert all(p.grad is not None and bool(p.grad.any()) for p in network.parameters())


def test_what_a_network_lacks_is_refused(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    class Family:
        network = staticmethod(lambda raw: network)

    monkeypatch.setattr("mmrl.pretrained.checks.find_family", lambda raw: Family)
    known = Known.read(ModelConfig(path="owner/name"))
    with pytest.raises(ConfigError, match="sampler.cache is 'dual'; it must be none"):
        check_sampling(known, SamplerConfig(cache="dual"))
    check_sampling(known, SamplerConfig())
    with pytest.raises(NotImplementedError, match="BagOfTokens has no cache"):
        network.new_cache()
    with pytest.raises(ValueError, match="no 4-bit form"):
        list_quantized(network)
