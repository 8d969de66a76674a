"""A LLaDA becomes a network that writes block by block, and is trained as one."""

import json
from pathlib import Path

import pytest
import torch

from mmrl.config import load_config
from mmrl.models import load_model, load_policy
from mmrl.sft import train
from mmrl.sft_config import SFTConfig
from mmrl.types import Prompt
from scripts.convert_to_sdar import Config, convert

TEXT = Path(__file__).parents[2] / "datasets" / "text"


@torch.no_grad()
def test_the_weights_are_those_of_the_checkpoint_and_queries_have_their_size(
    tmp_path: Path,
) -> None:
    source = TEXT / "checkpoints" / "llada"
    convert(Config(model=str(source), out=str(tmp_path / "sdar"), block_size=2))
    old, new = load_model(source), load_model(tmp_path / "sdar")
    state = new.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in old.state_dict().items())
    assert new.core.block_size == 2 and new.core.qk_norm
    policy = load_policy(tmp_path / "sdar", vq=None, max_completion_length=8)
    ids = policy.tokenizer.get_vocab()
    assert (
        policy.mask_id == ids["<|MASK|>"] and ids["<|im_end|>"] in policy.layouts["text"].stop_ids
    )
    canvas = policy.canvas([Prompt("0", "text", "compute 1+2*3")])
    assert canvas.response_blocks is not None and int(canvas.response_blocks.max()) == 3
    hidden = old.embed(canvas.tokens)
    attention = old.blocks[0].attn
    queries = attention.q(old.blocks[0].attn_norm(hidden))
    weight = new.blocks[0].attn.q_norm.weight
    assert 1 / 3 < float(weight[0] / queries.square().mean().sqrt()) < 3


@pytest.mark.slow
def test_the_adaptation_trains_in_the_blocks_of_the_network(tmp_path: Path) -> None:
    from datasets import Dataset

    start, data = tmp_path / "start", tmp_path / "pairs.parquet"
    convert(Config(model=str(TEXT / "checkpoints" / "llada"), out=str(start)))
    rows = [(f"compute {n}+1", f"<answer>{n + 1}</answer>") for n in range(8)]
    pairs = [{"prompt": prompt, "completion": completion} for prompt, completion in rows]
    Dataset.from_list(pairs).to_parquet(str(data))
    changes = {
        "config": "configs/sft/text_sdar.yaml",
        "objective.model": start,
        "objective.data": data,
        "output_dir": tmp_path / "run",
        "max_steps": 2,
        "per_device_train_batch_size": 4,
        "lr_scheduler_kwargs.num_decay_steps": 1,
        "warmup_steps": 0,
    }
    run = train(load_config(SFTConfig, [f"{key}={value}" for key, value in changes.items()]))
    public = json.loads((run / "final" / "config.json").read_text())
    assert (public["block_size"], public["block_alignment"]) == (4, "right")
    before, after = load_model(start), load_model(run / "final")
    pairs_of_weights = zip(before.named_parameters(), after.parameters(), strict=True)
    moved = [name for (name, old), new in pairs_of_weights if not torch.equal(old, new)]
    assert any("q_norm" in name for name in moved) and len(moved) > 10
