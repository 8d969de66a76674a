"""The memory estimate against what trainers hold, and by the ways of sharing a model."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mmrl.evaluation.eval_config import TEXT_TASKS, VISION_TASKS, load_settings
from mmrl.evaluation.plan import estimate_memory
from mmrl.models import load_model
from mmrl.models.families import FAMILIES
from mmrl.models.network.core import MaskedTokenModel
from mmrl.planning.batch_sizes import SHARE, settle_batch_sizes
from mmrl.planning.memory import count_policy, estimate
from mmrl.planning.network_memory import LIVE, Pass, count_network, estimate_network
from mmrl.pretrained.known import SIZES, known_config, outline_policy
from mmrl.pretrained.model_config import ModelConfig
from mmrl.rl_config import RLConfig
from mmrl.rollouts.tasks import Task
from mmrl.run_config import RunConfig
from mmrl.runtime.computation import Computation
from mmrl.runtime.logits_budget import DEVICE_BUDGET, LOGITS_BUDGET, rows_at_once
from mmrl.runtime.placement import ALONE, Placement
from mmrl.samplers import SamplerConfig
from mmrl.training.micro_batches import split_parts
from tests.mmrl.runs import LORA, World, rollouts, run_config, trainer_of

SHARED = Placement("fsdp2", 8, 8, device="cuda", memory=2.0**36)
COLUMNS = 126_464


def parts(config: RLConfig, placement: Placement = ALONE) -> dict[str, float]:
    tasks = [Task(name, options) for name, options in config.tasks.items()]
    return estimate(config, known_config(config.model.path) or {}, tasks, placement).device


@pytest.mark.parametrize("key", ["tasks.shapes.rollout_batch_size", "per_device_train_batch_size"])
def test_auto_takes_the_largest_size_whose_estimate_is_below_the_share_of_the_memory(
    key: str, world: World, tmp_path: Path
) -> None:
    auto: dict[str, Any] = {"per_device_train_batch_size": "auto"}
    if key.startswith("tasks"):
        auto = {"task": {"rollout_batch_size": "auto"}}
    config: RLConfig = run_config(world, tmp_path, **auto)

    def choose(memory: float) -> tuple[int, float]:
        """The size, and the estimate of its phase."""
        tasks = [Task(name, options) for name, options in config.tasks.items()]
        place = replace(ALONE, memory=memory)
        runs, sizes = settle_batch_sizes({"": config}, {task.name: task for task in tasks}, place)
        needs = estimate(runs[""], known_config(config.model.path) or {}, tasks, place)
        phase = "rollout" if key.startswith("tasks") else "update"
        return sizes[key], needs.phases()[phase]

    assert choose(1.0)[0] == 1
    most, need = choose(2.0**50)
    assert most == 8 and choose(need / SHARE * 1.0001)[0] == 8
    assert choose(need / SHARE * 0.9999)[0] == 4
    assert config.per_device_train_batch_size == auto.get("per_device_train_batch_size", 4)


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def test_weights_and_optimiser_are_those_of_the_trainer(world: World, tmp_path: Path) -> None:
    for name, changes in (
        ("full", {"algorithm": {"beta": 0.1}}),
        ("lora", {"lora": LORA, "model": {"dtype": "bfloat16"}}),
        ("some", {"algorithm": {"beta": 0.1}, "model": {"modules_to_train": ["blocks.1"]}}),
    ):
        config = run_config(world, tmp_path / name, **changes)
        trainer = trainer_of(config)
        trainer.update(rollouts(config, trainer))
        named = list(trainer.trained.named_parameters())
        states = [m for state in trainer.optimizers[0].state.values() for m in state.values()]
        expected = parts(config)
        assert expected["adapter"] == bytes_of(p for n, p in named if ".lora_" in n)
        assert expected["weights"] == bytes_of(p for n, p in named if ".lora_" not in n)
        assert expected["optimiser"] == bytes_of(moment for moment in states if moment.ndim)
        policy = {id(parameter) for parameter in trainer.policy.network.parameters()}
        copies = trainer.frozen.parameters() if trainer.frozen else ()
        reference = bytes_of(p for p in copies if id(p) not in policy)
        assert expected.get("reference", 0) == reference


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_activations_are_estimated_within_a_factor(
    world: World, tmp_path: Path, lora: dict | None, bf16: bool
) -> None:
    # two passes held at once, as their ratio is of both
    algorithm = {"name": "gdpo", "strategy": "full", "num_iterations": 1}
    config = run_config(world, tmp_path, lora=lora, algorithm=algorithm, bf16=bf16)
    trainer = trainer_of(config)
    task, batch = rollouts(config, trainer)["shapes"]
    prepared, kept = trainer._prepare(task, batch, 0), {}
    weights = {p.untyped_storage().data_ptr() for p in trainer.trained.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        [part, *_] = split_parts(prepared, [slice(0, 4)])
        loss, _ = trainer._loss(part)
    assert loss.requires_grad
    estimated = parts(config)["update"]
    assert 0.5 < estimated / sum(kept.values()) < 2.0
    config.model.gradient_checkpointing = True
    assert parts(config)["update"] < estimated


def test_the_8b_sizes_are_those_of_the_public_checkpoint(world: World, tmp_path: Path) -> None:
    raw = SIZES["MMaDA-8B"]
    with torch.device("meta"):
        network = MaskedTokenModel(FAMILIES["mmada"].core_config(raw))
    block = 4 * 4096**2 + 3 * 4096 * 12288 + 2 * 4096
    expected = 2 * 134656 * 4096 + 32 * block + 4096
    assert sum(p.numel() for p in network.parameters()) == expected
    config = run_config(world, tmp_path, lora={"r": 128, "target_modules": ["q", "down"]})
    sizes = count_policy(config, outline_policy(raw))
    assert sizes.weights == 4 * expected
    assert sizes.adapter == 4 * 32 * 128 * (2 * 4096 + 4096 + 12288)


def network_8b() -> Any:
    return outline_policy(SIZES["LLaDA-8B"]).requires_grad_(True)


def test_each_way_divides_what_it_shares_and_gathers_the_rest() -> None:
    found, config = Computation(True), RunConfig(save_steps=0)
    sizes = count_network(network_8b(), "adamw", 4, 4, bits=None, lora=0)

    def needs(place: Placement, whole: bool = False, **changes: Any) -> dict[str, float]:
        settings = replace(config, **changes)
        args = (found, 0.0, False, 0.0, whole)
        return estimate_network(sizes, place, settings, *args).device

    alone, ddp = needs(replace(SHARED, way="whole", shards=1, world_size=1)), Placement("whole", 2)
    assert alone["weights"] == alone["gradients"] == sizes.weights
    assert alone["optimiser"] == 2 * sizes.weights
    # the step of the optimiser takes a number for each weight, autocast keeps copies of them
    assert alone["update"] == sizes.weights and alone["sampling"] == sizes.weights / 2
    assert needs(ddp)["buckets"] == sizes.trained
    shared = needs(SHARED)
    for key in ("weights", "gradients", "optimiser"):
        assert shared[key] == alone[key] / 8
    assert shared["sampling"] == shared["update"] == 2 * sizes.unit
    assert sizes.weights > needs(SHARED, whole=True)["sampling"] > sizes.weights / 2 - 1
    zero = needs(replace(SHARED, way="zero3"))
    assert zero["weights"] == zero["kept gradients"] == sizes.weights / 8
    assert zero["optimiser"] == 3 * sizes.weights / 8
    assert zero["sampling"] == LIVE + sizes.weights / 2
    offloaded = replace(SHARED, offload_weights=True, offload_optimizer=True)
    assert set(needs(offloaded)) == {"sampling", "update"}
    kept = estimate_network(
        sizes, SHARED, replace(config, save_steps=1), found, 0.0, recompute=False
    )
    assert kept.host["snapshot"] == 4 * sizes.weights and "sampling" not in kept.device


def test_a_value_model_is_counted_by_the_way_it_is_shared(world: World, tmp_path: Path) -> None:
    algorithm = {"name": "trace_rl", "slice_size": 1, "value": {}}
    full = run_config(world, tmp_path, algorithm=algorithm)
    lora = run_config(world, tmp_path, algorithm=algorithm, lora=LORA)
    trained, shared = (trainer_of(config).value for config in (full, lora))
    assert trained is not None and shared is not None
    own = bytes_of(trained.parameters())
    adapter = bytes_of(p for p in shared.parameters() if p.requires_grad)
    frozen = bytes_of(shared.parameters()) - adapter
    assert parts(full)["value"] == 4 * own and parts(lora)["value"] == 4 * adapter
    pair = replace(SHARED, shards=2)
    for way, whole, divided in (("zero2", 1, 4), ("zero3", 0, 5), ("fsdp2", 0, 4)):
        place = replace(pair, way=way)
        assert parts(full, place)["value"] == whole * own + divided * own / 2
        copied = 0 if way == "zero2" else frozen / 2
        assert parts(lora, place)["value"] == copied + whole * adapter + divided * adapter / 2


def test_what_an_adapter_leaves_frozen_stays_whole_where_rollouts_gather_once() -> None:
    found, network = Computation(True), outline_policy(SIZES["LLaDA-8B"])
    network.requires_grad_(False)
    sizes = count_network(network, "adamw", 2, 2, bits=None, lora=10**8)
    args = (SHARED, RunConfig(save_steps=0), found, 0.0, False, 0.0)
    whole = estimate_network(sizes, *args, whole=True).device
    assert whole["weights"] == sizes.weights and whole["adapter"] == 4e8 / 8
    assert whole["sampling"] == 4e8 and whole["update"] < sizes.unit / 10
    assert estimate_network(sizes, *args).device["weights"] == sizes.weights / 8


@pytest.mark.parametrize(("device", "budget"), [("cpu", LOGITS_BUDGET), ("cuda", DEVICE_BUDGET)])
def test_logits_above_the_budget_of_a_device_come_in_parts(device: str, budget: int) -> None:
    nothing = dict.fromkeys(("count_activations", "count_images"), lambda *_: (0, 0))
    network: Any = SimpleNamespace(can_reduce=True, width=4096, count_cached=len, **nothing)
    every = Pass(network, device, 2, rows=16, length=512, scored=256, columns=COLUMNS)
    whole = 4.0 * 16 * 256 * COLUMNS
    part = 4.0 * rows_at_once(COLUMNS, device=device) * COLUMNS
    assert part <= budget < whole
    sampler = SamplerConfig(name="static", steps=8)
    assert every.sample(sampler) == 4 * part
    network.count_cached = lambda length: 0
    assert every.sample(replace(sampler, cache="refresh")) == 4 * whole, "it needs all logits"
    hidden = 2 * 4.0 * 16 * 256 * 4096
    assert every.train(False, held=2) == 2 * hidden + 3 * part
    small = replace(every, rows=1, scored=200)
    assert small.train(False) == 4 * (4.0 * 200 * COLUMNS)
    network.can_reduce = False
    assert every.sample(sampler) == 4 * whole and every.train(False) == 4 * whole


@pytest.mark.usefixtures("in_the_checkout")
def test_an_evaluation_holds_weights_and_the_row_of_its_table_that_takes_most() -> None:
    words = ["config=configs/eval/shapes_t2i.yaml", "sampler.cfg_scale=2", "batch_size=8"]
    config = load_settings(words, VISION_TASKS)
    network = load_model(config.model.path)
    found = estimate_memory(config, network.public_config).device
    assert found["weights"] == 4 * sum(p.numel() for p in network.parameters())
    assert found["sampling"] > 2 * 8 * 4 * 4 * 64 * network.public_config["codebook_size"]
    config = load_settings(["config=configs/eval/llada_humaneval.yaml"], TEXT_TASKS)
    found = estimate_memory(config, SIZES["LLaDA-8B"], "cuda").device
    assert found["weights"] == pytest.approx(16.03e9, rel=0.01)
    assert found["sampling"] > 2 * 16 * (1024 + 1024) * 4096 * 32 * 2, "its cache"


def test_every_position_that_shows_an_image_counts(world: World, tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (64, 64)).save(tmp_path / "one.png")
    (tmp_path / "rows.jsonl").write_text('{"prompt": "which?", "image": "one.png"}\n')
    (tmp_path / "words.jsonl").write_text('{"prompt": "which?"}\n')

    def update(task: str, raw: dict[str, Any], **model: Any) -> float:
        prompts = str(tmp_path / ("rows.jsonl" if task == "image_to_text" else "words.jsonl"))
        own = {"task": task, "prompts": prompts, "max_completion_length": 8}
        config: RLConfig = run_config(world, tmp_path, task=own)
        config.model = ModelConfig(path="owner/name", **model)
        jobs = [Task(name, options) for name, options in config.tasks.items()]
        return estimate(config, raw, jobs).device["update"]

    for name in ("MMaDA-8B", "LLaDA-V-8B"):
        assert update("image_to_text", SIZES[name]) > update("text", SIZES[name])
    words = update("text", SIZES["MMaDA-8B"])
    large, small = (update("image_to_text", SIZES["MMaDA-8B"], image_size=n) for n in (512, 256))
    assert (large - words) == pytest.approx(4 * (small - words))
    frozen, trained = (
        update("image_to_text", SIZES["LLaDA-V-8B"], train_vision_tower=each)
        for each in (False, True)
    )
    assert 1e10 < trained - frozen < 4e10, "what a trained tower keeps"
