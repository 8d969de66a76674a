"""A causal network of transformers, sharded over two processes against one.

`main` is what `tests.mmrl.pair` calls.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mmrl.models import load_model
from mmrl.models.loading import save_model
from mmrl.runtime.launch import join_processes
from mmrl.runtime.sharding import build_sharding
from mmrl.runtime.sharding.sampling import keep_pace
from tests.mmrl.pair import Pair
from tests.models.causal import write_causal

ROWS = torch.tensor([[0, 0, 0, 7, 11, 5, 9, 30], [3, 8, 12, 40, 2, 6, 21, 14]])
MASK = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1], [1] * 8])


def main(arguments: Sequence[str]) -> int:
    """Two optimiser steps on two rows, one for each process of two, then as many tokens as each
    process likes; arguments: a checkpoint, and the folder for the trained one."""
    accelerator = join_processes()
    sharding = build_sharding(accelerator)
    rank, number = accelerator.process_index, accelerator.num_processes
    network = load_model(arguments[0], "float64", deferred=sharding.gathers)
    network.gradient_checkpointing = True
    sharding.shard(network)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-2, eps=1e-3)
    [model], [stepped] = sharding.prepare([network], [optimizer])
    for _ in range(2):
        own = slice(rank, None, number)
        with sharding.accumulate([model], last=True):
            logits = model(input_ids=ROWS[own], attention_mask=MASK[own]).logits
            sharding.backward(logits[:, 4:].logsumexp(-1).square().mean(), model)
        sharding.clip_gradient(model, 1.0)
        stepped.step()
        stepped.zero_grad()
    if sharding.gathers:
        with keep_pace(network, accelerator.device), torch.no_grad():
            cache = network.new_cache()
            for column in range(3 + rank):
                network(input_ids=ROWS[:, column : column + 1], cache=cache)
    state = sharding.gather(sharding.weights(network))
    if rank == 0:
        save_model(network, arguments[1], state=state)
    return 0


@pytest.mark.slow
@pytest.mark.parametrize(("way", "kind"), [("sharing_pair", "qwen3"), ("zero3_pair", "qwen3-tied")])
def test_two_processes_that_share_its_blocks_train_as_one(
    tmp_path: Path, request: pytest.FixtureRequest, way: str, kind: str
) -> None:
    write_causal(tmp_path / "start", kind)
    both: Pair = request.getfixturevalue(way)
    words = [str(tmp_path / "start"), str(tmp_path / "two")]
    both.begin("tests.mmrl.runtime.test_sharded_causal", words)
    main([words[0], str(tmp_path / "one")])
    both.end()
    start, one, two = (
        load_file(tmp_path / name / "model.safetensors") for name in ("start", "one", "two")
    )
    assert start.keys() == one.keys() == two.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(
            two[name], tensor, atol=1e-6, rtol=0, msg=name
        )  # DeepSpeed steps in float32
        assert not torch.equal(tensor, start[name].double()), name
