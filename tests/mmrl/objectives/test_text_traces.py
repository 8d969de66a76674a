"""What supervised training hides, against what the sampler wrote."""

from pathlib import Path

import torch

from mmrl.objectives.corruptions.corruption import Chance
from mmrl.objectives.packed_rows import pack_rows
from mmrl.objectives.text_source import build_piece
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Prompt
from tests.mmrl.objectives.completions import completions, write_rows


@torch.no_grad()
def test_a_recorded_trace_is_replayed_as_the_sampler_wrote_it(data: Path, tmp_path: Path) -> None:
    objective = completions(data)
    policy, prompt = objective.policy, Prompt("0", "text", "two rings")
    settings = SamplerConfig(name="static", steps=6, block_size=4)
    rollout = sample(policy, policy.canvas([prompt], 8), settings, torch.Generator().manual_seed(3))
    response = rollout.canvas.response[0]
    row = {
        "prompt": "two rings",
        "completion": rollout.canvas.tokens[0, response].tolist(),
        "order": rollout.written_at[0, response].tolist(),
    }
    path = write_rows(tmp_path / "trace.jsonl", [row])
    replayed = completions(path, corruption={"name": "trace"})
    replayed.module.load_state_dict(objective.module.state_dict())
    [example] = replayed.source.rows.items
    slices, found = len(example.order.unique()), torch.zeros(8)
    for n in range(slices):
        chance = Chance((n + 0.5) / slices, *torch.rand(2, 8))
        view = replayed.source.corruption.corrupt(example.order, chance, replayed.source.options)
        rows = pack_rows([build_piece(example, None, view, policy.mask_id, None)], 0, 0)
        logits = replayed.module(input_ids=rows.ids).logits[0, -8:]
        logits[:, policy.mask_id] = -torch.inf  # a sampler never writes it
        logprobs = logits.log_softmax(-1).gather(1, rows.targets[0, -8:, None])[:, 0]
        found = torch.where(rows.weight[0, -8:] > 0, logprobs, found)
    torch.testing.assert_close(found, rollout.logprobs[0, response], rtol=0, atol=1e-5)


@torch.no_grad()
def test_blocks_are_those_of_the_sampler_whatever_the_length_of_the_prompt(data: Path) -> None:
    objective = completions(data, corruption={"name": "semi_ar", "block_size": 4})
    source = objective.source
    for text in ("a", "two rings", "a large red cross left of a circle"):
        canvas = objective.policy.canvas([Prompt("0", "text", text)], 8)
        settings = SamplerConfig(name="static", steps=4, block_size=4)
        rollout = sample(objective.policy, canvas, settings, torch.Generator().manual_seed(0))
        written = rollout.written_at[0, canvas.response[0]]
        for block in range(2):
            chance = Chance((block + 0.5) / 2, torch.ones(8), torch.zeros(8))
            view = source.corruption.corrupt(torch.arange(8), chance, source.options)
            assert torch.equal(view.weight > 0, written // 2 == block)
            assert torch.equal(view.hidden, written >= 2 * block)
