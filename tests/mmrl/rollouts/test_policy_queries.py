"""Rewards that ask the policy: its own answers, whatever asks beside them, in runs of the loop."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from mmrl.config import ConfigError
from mmrl.models import Policy, load_policy
from mmrl.planning.plan import describe
from mmrl.pretrained.known import Known
from mmrl.pretrained.model_config import ModelConfig
from mmrl.randomness import generator
from mmrl.rewards.answer import AnswerReward
from mmrl.rewards.judging.policy_query import PolicyQuery
from mmrl.rewards.judging.scene_questions import build_questions
from mmrl.rewards.scoring.scorer import Scorer
from mmrl.rl import train
from mmrl.rl_config import RLConfig
from mmrl.rollouts.policy_queries import bind_policy, check_queries, check_queries_unsharded
from mmrl.samplers import SamplerConfig, sample
from mmrl.types import Prompt, Sample
from tests.mmrl.runs import ROOT, VQ, World, metrics, run_config, same_weights

ANSWERS = ("1", "2", "yes", "no", "left")
LLADA = str(ROOT / "datasets" / "text" / "checkpoints" / "llada")
CYCLE: dict[str, Any] = {"name": "cycle", "max_completion_length": 1}
KINDS = ("count", "color", "relation", "existence")


@pytest.fixture(scope="module")
def talkative(world: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The world with an untrained policy that says little but answers."""
    policy = load_policy(world.policy, VQ)
    ids = [policy.tokenizer(word, add_special_tokens=False)["input_ids"] for word in ANSWERS]
    assert all(len(each) == 1 for each in ids)
    with torch.no_grad():
        policy.network.head.weight[torch.tensor(ids).flatten()] *= 8
    folder = tmp_path_factory.mktemp("talkative")
    policy.save(folder)
    return replace(world, policy=str(folder))


@pytest.fixture(scope="module")
def policy(talkative: World) -> Policy:
    return load_policy(talkative.policy, VQ, max_prompt_length=64)


def samples(policy: Policy, count: int = 8) -> list[Sample]:
    """Images that the policy drew, with metadata of every tag."""
    left = {"class": "cross", "count": 1, "position": ["left of", 0]}
    asked = [
        {"include": [{"class": "ring", "count": 1, "color": "red"}]},
        {"include": [{"class": "circle", "count": 2}]},
        {"include": [{"class": "ring", "count": 1}, left]},
    ]
    prompts = [Prompt(str(n), "text_to_image", "a ring") for n in range(count)]
    draws = [generator("drawn", n) for n in range(count)]
    rollout = sample(policy, policy.canvas(prompts), SamplerConfig(steps=3), draws)
    images = policy.decode(rollout.canvas, prompts)
    return [Sample("a ring", image, asked[n % 3]) for n, image in enumerate(images)]


def scores(policy: Policy, batch: list[Sample], **options: Any) -> list[float]:
    scorer = Scorer([{**CYCLE, **options}])
    bind_policy(scorer, {"": policy}, seed=3)
    return scorer.score(batch).components["cycle"]


def by_hand(policy: Policy, one: Sample) -> float:
    """Every question asked alone, the likeliest of all texts of one token."""
    right = []
    for text, facts in build_questions(one.metadata, KINDS):
        prompt = Prompt("", "image_to_text", text, images=[one.completion])  # type: ignore[list-item]
        canvas = policy.canvas([prompt], 1)
        with torch.no_grad():
            logits = policy.network(canvas.tokens, attention_mask=canvas.attend).logits[0, -1]
        first, end = canvas.columns
        logits[canvas.mask_id] = -torch.inf
        said = str(policy.tokenizer.decode(int(logits[first:end].argmax()) + first))
        right += AnswerReward()([Sample(text, said, facts)])
    return sum(right) / len(right)


def test_the_score_is_the_share_of_the_policys_own_likeliest_answers_that_are_right(
    policy: Policy,
) -> None:
    batch = samples(policy)
    found = scores(policy, batch)
    assert found == [by_hand(policy, one) for one in batch] and len(set(found)) > 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_scores_depend_neither_on_the_batch_nor_on_what_else_is_scored(
    policy: Policy, temperature: float
) -> None:
    batch, sampler = samples(policy), {"temperature": temperature}
    found = scores(policy, batch, sampler=sampler)
    assert scores(policy, batch, sampler=sampler, batch_size=1) == found
    assert scores(policy, batch, sampler=sampler, batch_size=5) == found
    assert [scores(policy, [one], sampler=sampler)[0] for one in batch] == found
    assert scores(policy, batch[::-1], sampler=sampler) == found[::-1]


def test_asking_leaves_no_gradient_and_draws_from_no_shared_generator(policy: Policy) -> None:
    before = torch.get_rng_state()
    scores(policy, samples(policy), sampler={"temperature": 1.0})
    assert torch.equal(before, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in policy.network.parameters())


def test_every_call_keeps_pace_with_other_processes_once_with_or_without_a_question(
    policy: Policy,
) -> None:
    depth: list[int] = []

    class Pace:
        def __init__(self, ragged: bool) -> None:
            assert ragged

        def __enter__(self) -> None:
            depth.append(1)

        def __exit__(self, *_: object) -> None:
            depth.append(-1)

    batch = samples(policy)
    before, policy.sampling = policy.sampling, Pace  # type: ignore[assignment]
    try:
        scores(policy, batch, batch_size=2)
        scores(policy, [Sample("", batch[0].completion, {})])
    finally:
        policy.sampling = before
    assert depth == [1, -1, 1, -1]


def cyclic(world: World, output: Path, **changes: Any) -> RLConfig:
    task = {"rewards": [{**CYCLE, "sampler": {"temperature": 1.0}}], "eval_prompts": world.held_out}
    task |= {"eval_limit": 3, "num_prompts": 6, "eval_rewards": [{**CYCLE, "ask": ["count"]}]}
    config = run_config(world, output, task=task, **{"eval_steps": 2, "max_steps": 2, **changes})
    config.model.max_prompt_length = 64
    return config


def test_a_run_learns_from_it_and_resumes_exactly(talkative: World, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"save_steps": 1, "save_total_limit": None}
    whole = train(cyclic(talkative, tmp_path / "whole", **changes))
    lines = metrics(whole)
    updates = [line for line in lines if "loss" in line]
    assert all(0 < line["rewards/cycle/mean"] < 1 for line in updates)
    assert any(line["reward_std"] > 0 and line["grad_norm"] > 0 for line in updates)
    assert [line["step"] for line in lines if "eval/shapes/cycle" in line] == [0, 2]
    changes |= {"resume_from_checkpoint": str(whole / "checkpoints" / "1")}
    again = train(cyclic(talkative, tmp_path / "again", **changes))
    assert same_weights(whole / "final", again / "final")
    assert metrics(again) == lines[-len(metrics(again)) :]


def test_a_dry_run_says_that_it_waits_for_the_policy(talkative: World, tmp_path: Path) -> None:
    assert "not tried: the loop calls it itself" in str(describe(cyclic(talkative, tmp_path)))


def refused() -> Iterator[tuple[dict[str, Any], dict[str, Any], str]]:
    llada, mmada = {"path": LLADA, "vq": None}, {"path": str(ROOT / "none"), "vq": VQ}
    yield ({}, llada, r"model.path is .*or lumina or mmada.* for what the reward cycle of x asks")
    yield {"sampler": {"stepz": 1}}, mmada, r"x\[0\].sampler.*stepz"
    yield {"sampler": {"name": "hasty"}}, mmada, r"x\[0\].sampler.name is 'hasty'"
    yield {"sampler": {"steps": 3, "block_size": 2}}, mmada, r"x\[0\].sampler.block_size is 2"
    yield {"asks": ["count"]}, mmada, "asks"


@pytest.mark.parametrize(("options", "model", "message"), list(refused()))
def test_what_the_policy_could_not_answer_is_refused_before_it_is_loaded(
    options: dict[str, Any], model: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_queries([{**CYCLE, **options}], "x", {"": Known.read(ModelConfig(**model))})


def test_a_run_refuses_a_policy_that_reads_no_images(tmp_path: Path) -> None:
    lines = (ROOT / "datasets" / "text" / "sudoku_test.jsonl").open()
    (tmp_path / "prompts.jsonl").write_text("".join(islice(lines, 2)))
    world = World(LLADA, str(tmp_path / "prompts.jsonl"))
    config = run_config(world, tmp_path / "run", task={"task": "text", "rewards": [CYCLE]})
    config.model.vq = None
    for run in (train, describe):
        with pytest.raises(ConfigError, match="the reward cycle of tasks.shapes.rewards asks it"):
            run(config)
    assert not (tmp_path / "run").exists()


def test_an_evaluation_in_which_one_process_scores_needs_the_whole_policy() -> None:
    check_queries_unsharded([CYCLE], sharded=False)
    check_queries_unsharded([{"name": "shapes"}], sharded=True)
    with pytest.raises(ConfigError, match=r"\['cycle'\].*the processes share its weights"):
        check_queries_unsharded([CYCLE], sharded=True)


def test_a_reward_of_ones_own_may_ask_as_well(policy: Policy) -> None:
    class Says:
        """The answer to one question, as a number."""

        in_step = True

        def query(self) -> PolicyQuery:
            return PolicyQuery(task="text", length=1, sampler={"steps": 1}, batch_size=2)

        def bind(self, answer: Any) -> None:
            self.answer = answer

        def __call__(self, batch: list[Sample]) -> list[float]:
            said = self.answer([Prompt(str(n), "text", "how many?") for n in range(len(batch))])
            return [float(len(text)) for text in said]

    entries = [{"name": "says", "reward": Says()}]
    check_queries(entries, "x", {"": Known.read(ModelConfig(path=LLADA, vq=None))})
    scorer = Scorer(entries)
    bind_policy(scorer, {"": policy}, 0)
    assert len(scorer.score([Sample("", "")] * 3).components["says"]) == 3
    Says.in_step = False
    with pytest.raises(ConfigError, match="in_step of the reward says is False"):
        bind_policy(scorer, {"": policy}, 0)
