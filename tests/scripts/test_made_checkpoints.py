"""What scripts make of a checkpoint: a merged adapter, and a network that writes block by block."""

from pathlib import Path

import pytest
import torch

from mmrl.config import ConfigError
from mmrl.models import load_model, load_policy
from mmrl.models.policy import load_tokenizer
from mmrl.types import Prompt
from scripts.convert_to_sdar import Config, convert
from tests import by_path
from tests.models.llada_tokenizer import small_tokenizer
from tests.models.test_adapter_weights import write

ROOT = Path(__file__).parents[2]
script = by_path.load(ROOT / "scripts", "merge_adapter")


def test_the_merged_model_is_the_adapter_on_its_base_with_the_tokenizer(tmp_path: Path) -> None:
    network, folder = write(tmp_path)
    small_tokenizer().save_pretrained(tmp_path / "base")
    options = {"adapter": str(folder), "out": str(tmp_path / "merged"), "dtype": "float32"}
    script.merge(script.Config(**options))
    assert not (tmp_path / "merged" / "adapter_config.json").exists()
    ids = torch.arange(12).view(2, 6)
    with torch.no_grad():
        merged = load_model(tmp_path / "merged")(input_ids=ids).logits
        torch.testing.assert_close(merged, network(input_ids=ids).logits, atol=1e-4, rtol=1e-4)
    assert len(load_tokenizer(tmp_path / "merged")) == len(small_tokenizer())
    with pytest.raises(ConfigError, match="a folder that does not exist yet"):
        script.Config(**options)
    with pytest.raises(ConfigError, match="holds no adapter_config.json"):
        script.merge(script.Config(adapter=str(tmp_path / "base"), out=str(tmp_path / "other")))


@torch.no_grad()
def test_the_weights_are_those_of_the_checkpoint_and_queries_keep_size(tmp_path: Path) -> None:
    source = ROOT / "datasets" / "text" / "checkpoints" / "llada"
    convert(Config(model=str(source), out=str(tmp_path / "sdar"), block_size=2))
    old, new = load_model(source), load_model(tmp_path / "sdar")
    state = new.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in old.state_dict().items())
    assert new.block_size == 2 and new.core.qk_norm
    policy = load_policy(tmp_path / "sdar", vq=None, max_completion_length=8)
    ids = policy.tokenizer.get_vocab()
    assert (
        policy.mask_id == ids["<|MASK|>"] and ids["<|im_end|>"] in policy.layouts["text"].stop_ids
    )
    canvas = policy.canvas([Prompt("0", "text", "compute 1+2*3")])
    assert canvas.split() is not None and int(canvas.split().max()) == 3
    hidden = old.embed(canvas.tokens)
    attention = old.blocks[0].attn
    queries = attention.q(old.blocks[0].attn_norm(hidden))
    weight = new.blocks[0].attn.q_norm.weight
    assert 1 / 3 < float(weight[0] / queries.square().mean().sqrt()) < 3
