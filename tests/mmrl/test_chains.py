"""Chains of tasks and several policies in a run: prompts go down, rewards come up."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator

from mmrl import rl
from mmrl.config import ConfigError, load_config
from mmrl.demo.checkpoints import find_checkpoints
from mmrl.demo.demo_config import DemoConfig
from mmrl.models import load_policy
from mmrl.models.network.core import MaskedTokenModel
from mmrl.planning.plan import describe
from mmrl.planning.run_checks import check_run
from mmrl.pretrained.model_config import policy_options
from mmrl.rl_config import RLConfig
from mmrl.rollouts.chain import follow, lead, link_tasks, pass_up, sample_chains, score_chains
from mmrl.rollouts.task_config import ChainConfig
from mmrl.rollouts.tasks import Task
from mmrl.training.trainer import Trainer
from mmrl.training.trainers import Trainers, load_policies
from tests.mmrl.pair import Pair
from tests.mmrl.runs import metrics, same_weights
from tests.mmrl.same_runs import close, equal_metrics

LLADA, SD3 = "datasets/text/checkpoints/llada", "tests/fixtures/flow_sd3/pipeline"
MMADA, MAGVIT = "datasets/shapes/checkpoints/mmada", "datasets/shapes/checkpoints/magvit"
METHOD = "{name: grpo, strategy: replay, kl: gaussian_rate, adv_clip_max: 5, epsilon: 0.01}"
TWO = [
    *[f"models.enhancer.path={LLADA}", "models.enhancer.vq=null", "tasks.enhance.policy=enhancer"],
    *["models.enhancer.max_prompt_length=24", "models.enhancer.learning_rate=1e-2"],
    *[f"models.painter.path={SD3}", "models.painter.image_size=32", "tasks.draw.policy=painter"],
    "models.painter.max_prompt_length=32",
]
TASKS = [
    *["tasks.enhance.task=text", "tasks.enhance.max_completion_length=8"],
    "tasks.enhance.sampler={name: static, steps: 4, block_size: 8}",
    *["tasks.enhance.algorithm={name: trace_rl, beta: 0.0}", "tasks.enhance.num_prompts=2"],
    *["tasks.enhance.num_generations=2", "tasks.draw.prompts=tasks.enhance"],
    *["tasks.draw.num_generations=2", "tasks.draw.sampler={name: flow, steps: 3}"],
    *["tasks.draw.rewards=[{name: 'tests/mmrl/runs.py:redness'}]", "tasks.draw.diversity=[]"],
    *[f"tasks.draw.algorithm={METHOD}", "per_device_train_batch_size=2", "adam_epsilon=1e-3"],
    *["learning_rate=1e-3", "max_steps=2", "save_steps=1", "bf16=false"],
]


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("chains") / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"a {n}"}) + "\n" for n in range(6)))
    return path


def words(prompts: Path, out: Path, *more: str, model: Sequence[str] = TWO) -> list[str]:
    given = [f"tasks.enhance.prompts={prompts}", f"tasks.enhance.eval_prompts={prompts}"]
    return [f"output_dir={out}", *model, *TASKS, *given, *more]


def run(prompts: Path, out: Path, *more: str, model: Sequence[str] = TWO) -> Path:
    assert rl.main(words(prompts, out, *more, model=model)) == 0
    return out


def start(prompts: Path, out: Path, *more: str) -> Any:
    """The settings, tasks and trainers of a run, before its first step."""
    config = load_config(RLConfig, words(prompts, out, *more))
    tasks, accelerator = check_run(config), Accelerator(cpu=True)
    policies = load_policies(config, accelerator)
    for task in tasks.values():
        task.bind_policies(policies, config.seed)
    return config, tasks, Trainers(config, config.runs, policies, accelerator)


@pytest.mark.parametrize(
    ("rule", "known"),
    [("mean", [0.2, 0.5, 0.5, 0.6]), ("max", [0.3, 0.8, 0.6, 0.7]), ("sum", [0.4, 1, 1, 1.2])],
)
def test_rewards_come_up_as_in_unirl(rule: Any, known: list[float]) -> None:
    batch: Any = type("", (), {"rewards": torch.tensor([0.1, 0.3, 0.2, 0.8, 0.4, 0.6, 0.5, 0.7])})
    assert pass_up(batch, ChainConfig(reward=rule), 2) == pytest.approx(known)
    batch.rewards[:3] = torch.nan
    half = pass_up(batch, ChainConfig(reward=rule, weight=0.5), 2)
    assert half[0] is None and half[1] == pytest.approx(0.4)


def test_a_step_samples_down_and_scores_up(prompts: Path, tmp_path: Path) -> None:
    _, tasks, _ = start(prompts, tmp_path)
    groups = sample_chains(tasks, 0, 0, 0, 1)
    batches = score_chains(groups)
    above, below = batches["enhance"], batches["draw"]
    assert (len(above), len(below)) == (4, 8) and list(batches) == ["enhance", "draw"]
    assert [p.text for p in below.prompts[::2]] == [str(each).strip() for each in above.completions]
    assert [s.prompt for s in groups["draw"].samples[::4]] == [p.text for p in above.prompts[::2]]
    assert torch.allclose(above.rewards, below.rewards.view(-1, 2).mean(1))
    assert above.names == [(0, 0), (0, 1), (1, 0), (1, 1)] and below.names[2:4] == [(1, 0), (1, 1)]
    assert torch.allclose(below.advantages.view(-1, 2).sum(1), torch.zeros(4), atol=1e-5)


def test_what_follows_a_marker_is_the_prompt_and_an_empty_one_falls_back(
    prompts: Path, tmp_path: Path
) -> None:
    _, tasks, _ = start(prompts, tmp_path, "tasks.draw.chain={marker: 'Prompt:'}")
    task, asked = tasks["draw"], tasks["enhance"].prompts[:3]
    task.eval_prompts = [replace(task.prompts[0], text="of another split")]
    found, empty = follow(task, asked, ["so: Prompt: red cat ", "Prompt:", "all"], task.policy)
    assert ([p.text for p in found], empty) == (["red cat", asked[1].text, "all"], 1)
    assert [p.original for p in found] == [p.text for p in asked]
    [again] = follow(task, asked[:1], ["x"], task.policy, held_out=True)[0]
    assert again.original == "of another split"
    task.config.chain.reward_prompt = "rewritten"
    assert follow(task, asked[:1], ["x"], task.policy)[0][0].original is None
    held_out = lead(task, task.eval_prompts, 0)
    assert [p.original for p in held_out] != [p.text for p in held_out]


def test_each_policy_is_updated_as_if_it_were_trained_alone(prompts: Path, tmp_path: Path) -> None:
    config, tasks, trainers = start(prompts, tmp_path)
    batches = score_chains(sample_chains(tasks, 0, 0, 0, 1))
    trainers.update(tasks, batches)
    for name, task in (("enhancer", "enhance"), ("painter", "draw")):
        own = config.runs[name]
        alone = Trainer(own, load_policy(**policy_options(own.model)), Accelerator(cpu=True))
        alone.update({task: (tasks[task], batches[task])})
        present = trainers.policies[name].network
        pairs = zip(alone.trained.parameters(), present.parameters(), strict=True)
        assert all(torch.equal(one, two) for one, two in pairs)
        before = load_policy(**policy_options(own.model)).network.parameters()
        pairs = zip(before, present.parameters(), strict=True)
        assert not all(torch.equal(one, two) for one, two in pairs)


class BothKinds(MaskedTokenModel):
    """A network that un-masks tokens, and denoises latents by a network within it."""

    latents: Any
    dtype = torch.float32

    def forward(self, *given: Any, **inputs: Any) -> Any:
        return self.latents(**inputs) if "latents" in inputs else super().forward(*given, **inputs)

    def guide(self, *given: Any) -> torch.Tensor:
        return self.latents.guide(*given)

    def count_tokens(self, shape: Sequence[int]) -> int:
        return self.latents.count_tokens(shape)


def test_a_network_of_two_kinds_learns_both_in_one_step(prompts: Path, tmp_path: Path) -> None:
    rate = "max_grad_norm=0", "learning_rate=1e-2"
    config = load_config(RLConfig, words(prompts, tmp_path, *rate))
    own = config.changed(models={}, model=config.runs["enhancer"].model, tasks={})
    for name, task in config.tasks.items():
        own.tasks[name] = replace(task, policy="")
    parts = {n: load_policy(**policy_options(run.model)) for n, run in config.runs.items()}
    network: Any = parts["enhancer"].network
    network.__class__, network.latents = BothKinds, parts["painter"].network
    layouts = {**parts["painter"].layouts, **parts["enhancer"].layouts}
    both = replace(parts["enhancer"], network=network, model=network, layouts=layouts)
    tasks = link_tasks({n: Task(n, t) for n, t in own.runs[""].tasks.items()}, own.tasks)
    for task in tasks.values():
        task.bind_policies({"": both}, 0)
    trainers = Trainers(own, own.runs, {"": both}, Accelerator(cpu=True))
    batches = score_chains(sample_chains(tasks, 0, 0, 0, 1))
    trainers.update(tasks, batches)
    for name, key in (("enhancer", "enhance"), ("painter", "draw")):
        alone = config.runs[name].changed(learning_rate=1e-2)
        trainer = Trainer(alone, load_policy(**policy_options(alone.model)), Accelerator(cpu=True))
        trainer.update({key: (tasks[key], batches[key])})
        found = network.latents if name == "painter" else network
        present = {n: p for n, p in found.named_parameters() if not n.startswith("latents.")}
        for label, parameter in trainer.policy.network.named_parameters():
            assert torch.equal(parameter, present[label]), label


def test_policies_take_turns_or_stay_as_they_are(prompts: Path, tmp_path: Path) -> None:
    _, tasks, trainers = start(prompts, tmp_path, "updates=in_turn", "ref_model_sync_steps=2")
    synced: list[str] = []
    for name, trainer in trainers.trainers.items():
        trainer.reference_moves, trainer.sync_reference = True, partial(synced.append, name)
    batches = score_chains(sample_chains(tasks, 0, 0, 0, 1))
    for turn in range(4):
        found = trainers.update(tasks, batches)
        assert [f"{name}/loss" in found for name in trainers.trainers] == [not turn % 2, turn % 2]
    assert synced == ["enhancer", "painter"], "after two updates of its own"
    _, tasks, trainers = start(prompts, tmp_path, "models.enhancer.frozen=true")
    found = trainers.update(tasks, score_chains(sample_chains(tasks, 0, 0, 0, 1)))
    assert "loss" in found and list(trainers.trainers) == ["painter"]


@pytest.mark.slow
def test_a_resumed_run_and_two_processes_are_one(prompts: Path, tmp_path: Path, pair: Pair) -> None:
    model = [each.replace("painter", "2") for each in TWO]
    pair.begin("mmrl.rl", words(prompts, tmp_path / "two", model=model))
    more = ["eval_steps=1", "offload=true"]
    one = run(prompts, tmp_path / "one", model=model)
    parts = run(prompts, tmp_path / "parts", "max_steps=1", *more, model=model)
    run(prompts, parts, *more, "resume_from_checkpoint=auto", model=model)
    pair.end()
    equal_metrics(one, tmp_path / "two")
    for name in ("enhancer", "2"):
        part = "transformer" if name == "2" else ""
        close(one / "final" / name / part, tmp_path / "two" / "final" / name / part, 1e-5)
        assert same_weights(one / "final" / name / part, parts / "final" / name / part)
    assert any("eval/draw/redness" in line for line in metrics(parts))


def test_one_policy_by_its_name_is_the_short_form(prompts: Path, tmp_path: Path) -> None:
    own = ["path=" + MMADA, "vq=" + MAGVIT, "max_prompt_length=32"]
    think = ["tasks.draw.sampler={name: emerge, steps: 3}", "max_steps=1"]
    think += ["tasks.draw.algorithm={name: mask_grpo}", "tasks.enhance.weight=0.5"]
    short = run(prompts, tmp_path / "short", *think, model=[f"model.{each}" for each in own])
    named = [f"models.one.{each}" for each in own]
    named += ["tasks.enhance.policy=one", "tasks.draw.policy=one"]
    long = run(prompts, tmp_path / "long", *think, model=named)
    assert metrics(short) == metrics(long)
    assert same_weights(short / "final", long / "final" / "one")
    card = (long / "final" / "one" / "README.md").read_text()
    assert MMADA in card and f'load_policy("{long}/final/one"' in card
    listed = find_checkpoints(DemoConfig(checkpoints=[], runs=[str(tmp_path)]))
    assert {str(short / "final"), str(long / "final" / "one")} <= listed.keys()
    assert listed[str(long / "final" / "one")].vq == MAGVIT


def test_the_plan_shows_the_tree_and_the_memory_of_all(prompts: Path, tmp_path: Path) -> None:
    page = str(describe(load_config(RLConfig, words(prompts, tmp_path))))
    assert "enhance: 2 x 2 = 4, enhancer" in page and "draw: 4 x 2 = 8, painter, mean" in page
    assert all(f"{name} weights" in page for name in ("enhancer", "painter"))
    frozen = [f"models.judge.path={LLADA}", "models.judge.frozen=true", "devices=A100-40GB"]
    frozen += ["models.enhancer.frozen=true", "per_device_train_batch_size=null", "dry_run=true"]
    page = " ".join(str(describe(load_config(RLConfig, words(prompts, tmp_path, *frozen)))).split())
    assert re.findall(r"(\w+) (?:gradients|optimiser|snapshot) \d", page) == ["painter"] * 3
    assert "judge weights" in page and page.count(" s of update a step") == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("tasks.enhance.prompts=tasks.draw", "tasks.enhance.prompts is 'tasks.draw'.*writes texts"),
        ("tasks.enhance.prompts=tasks.enhance", "closes a circle: enhance <- enhance"),
        ("tasks.draw.prompts=tasks.other", r"tasks.draw.prompts is 'other'"),
        ("tasks.draw.policy=other", "tasks.draw.policy is 'other'.*enhancer, painter"),
        ("tasks.draw.num_generations=1", "num_generations"),
        ("tasks.draw.chain.reward=none", "tasks.enhance.rewards"),
        ("models.judge.path=x", "models.judge is 'x'.*frozen: true"),
        ("model.path=x", "model.path is 'x'; it must be empty"),
        ("models.enhancer.frozen=true & models.painter.frozen=true", "one is not frozen"),
        ("tasks.draw.max_num_gen_batches=2", "1 in a chain"),
        ("tasks.draw.policy=enhancer & models.painter.frozen=true", "a checkpoint of type"),
        ("tasks.draw.rewards=[{name: cycle, policy: nobody}]", "policy is 'nobody'"),
    ],
)
def test_a_chain_that_cannot_be_is_refused_before_weights_load(
    prompts: Path, tmp_path: Path, change: str, message: str
) -> None:
    with pytest.raises((ConfigError, ValueError), match=message):
        check_run(load_config(RLConfig, words(prompts, tmp_path, *change.split(" & "))))
