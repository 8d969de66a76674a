"""A LLaDA becomes a network that writes block by block, and is trained as one."""

from pathlib import Path

import torch

from mmrl.models import load_model, load_policy
from mmrl.types import Prompt
from scripts.convert_to_sdar import Config, convert

TEXT = Path(__file__).parents[2] / "datasets" / "text"


@torch.no_grad()
def test_the_weights_are_those_of_the_checkpoint_and_queries_keep_size(tmp_path: Path) -> None:
    source = TEXT / "checkpoints" / "llada"
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
