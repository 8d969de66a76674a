"""Blocks of the prompts' own size: every row is what it is alone with that size."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mmrl.algorithms import AlgorithmConfig, load_algorithm
from mmrl.algorithms.ratios import RATIO_LEVELS
from mmrl.config import ConfigError
from mmrl.estimators import draw_passes
from mmrl.generation.masked.canvas import MaskedCanvas
from mmrl.pretrained.checks import check_network_blocks
from mmrl.rl import main
from mmrl.rollouts.pairing import check_pairing, find_differences
from mmrl.samplers import SAMPLERS, SamplerConfig, sample
from mmrl.types import Prompt, Rollout
from tests.mmrl.canvases import generators
from tests.mmrl.runs import VQ, World, metrics
from tests.mmrl.text_canvases import EXACT, LENGTH, canvas_of

SIZES = (6, 2, 12, 6, 3)


def canvas(sizes: Sequence[object] = SIZES, ends: tuple[int, ...] = (5, 17)) -> MaskedCanvas:
    rows = canvas_of([4, 2, 6, 3, 1][: len(sizes)], ends=ends)
    return rows.read_metadata([{"block_size": size, "level": 1} for size in sizes])


def settings(name: str = "static", **options: Any) -> SamplerConfig:
    return SamplerConfig(name=name, steps=LENGTH, **{"block_size": "prompt", **options})


@pytest.mark.parametrize(
    ("name", "options"),
    [("static", {}), ("dynamic", {"threshold": 0.4, "eos": "stop"})]
    + [("fork", {"threshold": 0.6, "cfg_scale": 1.5}), ("static", {"cache": "dual", "window": 1})]
    + [("emerge", {"eos": "leave"})],
)
def test_a_row_is_what_it_is_alone_with_its_size(name: str, options: dict[str, Any]) -> None:
    draws, config = generators(5), settings(name, **options)
    done = sample(EXACT, canvas(), config, draws)
    assert done.settings["block_size"] == "prompt" and not bool(done.canvas.masked.any())
    blocks = done.blocks
    assert blocks is not None and done.drawn is not None and done.seeds is not None
    for row, size in enumerate(SIZES):
        one = slice(row, row + 1)
        own = replace(config, block_size=size)
        alone = sample(EXACT, canvas()[one], own, generators(5)[one])
        assert torch.equal(alone.canvas.tokens, done.canvas.tokens[one])
        assert torch.equal(alone.trace, done.trace[one])
        assert torch.equal(alone.seeds, done.seeds[one])  # type: ignore[arg-type]
        assert torch.equal(alone.drawn, done.drawn[one])  # type: ignore[arg-type]
        assert torch.equal(alone.blocks, blocks[one])  # type: ignore[arg-type]
        torch.testing.assert_close(alone.logprobs, done.logprobs[one], atol=1e-6, rtol=0)


def test_sizes_stay_with_their_rows() -> None:
    done = sample(EXACT, canvas(), settings(), generators(5))
    wider = replace(done, canvas=done.canvas.pad_left(2))
    wider.trace, wider.logprobs, wider.drawn = (
        torch.nn.functional.pad(each, (2, 0)) for each in (done.trace, done.logprobs, done.trace)
    )
    joined = Rollout.join([wider[3:], done[torch.tensor([1, 0])]])
    assert joined.blocks is not None
    assert joined.blocks.amax(1).tolist() == [LENGTH // size - 1 for size in (6, 3, 2, 6)]


@pytest.mark.parametrize("size", [None, 0, -4, 2.5, True, "four", [4]])
def test_a_prompt_without_a_possible_size_is_refused(size: object) -> None:
    rows = canvas((4, size))
    assert rows.sizes is None
    with pytest.raises(ConfigError, match="not all of these prompts have block_size"):
        sample(EXACT, rows, settings(), generators(2))
    prompts = [
        Prompt("0", "text", "a", metadata={"block_size": 4}, place="rows.jsonl, line 1"),
        Prompt("1", "text", "b", metadata={"block_size": size}, place="rows.jsonl, line 2"),
    ]
    config, check = settings(), SAMPLERS["static"].check_prompts
    message = r"rows\.jsonl, line 2: block_size is .*; it must be an integer of at least 1"
    with pytest.raises(ConfigError, match=message):
        check(config, prompts, LENGTH)
    check(config, prompts[:1], LENGTH)
    check(replace(config, block_size=4), prompts, LENGTH)


def test_a_size_that_divides_nothing_is_refused_with_its_row() -> None:
    check = SAMPLERS["static"].check_prompts
    prompts = [Prompt("7", "text", "a", metadata={"block_size": "5"})]
    with pytest.raises(ConfigError, match="7: block_size is 5; it must be a divisor of the 12"):
        check(settings(), prompts, 12)
    with pytest.raises(ConfigError, match="and the number of blocks one of the 5 steps"):
        check(replace(settings(), steps=5), prompts, 10)
    check(settings(), prompts, None)


def test_masks_and_ratios_follow_the_blocks_of_each_row() -> None:
    done = sample(EXACT, canvas(), settings(), generators(5))
    options = {"strategy": "blockwise", "ratio_level": "block", "num_draws": 3}
    passes = draw_passes(done, AlgorithmConfig(block_size="prompt", **options), generators(5))
    new, old = (torch.rand(passes.scored.shape, generator=g) for g in generators(2))
    level = RATIO_LEVELS["block"].log_ratio
    ratios = level(new, old, passes.scored, None, passes.blocks)
    for row, size in enumerate(SIZES):
        one = slice(row, row + 1)
        own = AlgorithmConfig(block_size=size, **options)
        alone = draw_passes(done[one], own, generators(5)[one])
        assert torch.equal(alone.query.mask, passes.query.mask[:, one])
        assert torch.equal(alone.weight, passes.weight[:, one])
        assert torch.equal(alone.blocks, passes.blocks[one])  # type: ignore[index, arg-type]
        found = level(new[:, one], old[:, one], alone.scored, None, alone.blocks)
        torch.testing.assert_close(found, ratios[:, one])


def test_what_cannot_follow_is_refused_or_said() -> None:
    method = load_algorithm({"name": "spg", "block_size": "prompt"})
    message = r"t\.algorithm\.block_size is 'prompt'; it must be null or a number"
    with pytest.raises(ConfigError, match=message):
        check_pairing(method, settings(block_size=8), "t")
    check_pairing(method, settings(), "t")
    assert find_differences(method, settings()) == []
    [said] = find_differences(load_algorithm({"name": "spg"}), settings())
    assert said == "block_size is prompt in the rollout and 32 in scoring"
    known: Any = SimpleNamespace(blocks={"block_size": 4})
    with pytest.raises(ConfigError, match="s.block_size is 'prompt'; it must be null or 4"):
        check_network_blocks(known, settings(), LENGTH, "s", "length")
    with pytest.raises(ConfigError, match="null with the cache refresh"):
        settings(cache="refresh")
    with pytest.raises(ConfigError, match="block_size is 'own'; it must be null or prompt or at"):
        settings(block_size="own")


def words(world: World, folder: Path, *sizes: object) -> list[str]:
    """A run on prompts with these sizes in a column of another name."""
    texts = ["a red circle", "two green squares", "a blue ring", "a purple ring"]
    rows = [{"prompt": p, "best": size} for p, size in zip(texts, sizes, strict=True)]
    (folder / "text.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "reward.py").write_text(
        "def vowels(samples):\n    return [sum(map(s.completion.count, 'aei')) for s in samples]\n"
    )
    task = "tasks.words"
    own = [f"prompts={folder}/text.jsonl", "task=text", "data.columns={block_size: best}"]
    own += ["sampler={name: static, steps: 8, block_size: prompt}", "max_completion_length=8"]
    own += ["num_prompts=2", "num_generations=4"]
    own += [f"rewards=[{{name: '{folder}/reward.py:vowels'}}]"]
    own += ["algorithm={name: spg, block_size: prompt, num_draws: 2}"]
    model = [f"model.path={world.policy}", f"model.vq={VQ}", "model.max_prompt_length=40"]
    run = [f"output_dir={folder}/run", "bf16=false", "max_steps=2"]
    return [*run, *model, *(f"{task}.{word}" for word in own)]


def test_a_run_trains_with_the_sizes_of_its_prompts(world: World, tmp_path: Path) -> None:
    assert main(words(world, tmp_path, 8, 4, 2, "1")) == 0
    lines = [line for line in metrics(tmp_path / "run") if "loss" in line]
    assert len(lines) == 2 and all(line["grad_norm"] > 0 for line in lines)


def test_a_run_with_an_impossible_size_ends_before_its_policy_loads(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(world, tmp_path, 8, 4, 3, 8)) != 0
    said = capsys.readouterr().err
    assert "text.jsonl, line 3: block_size is 3; it must be a divisor of the 8" in said
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
