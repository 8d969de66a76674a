"""The benchmarks at sizes of seconds: what they compare gives the same."""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a benchmark by its name; they import each other."""
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module


@pytest.mark.slow
def test_ours_and_the_straightforward_way_agree(bench: Callable[[str], ModuleType]) -> None:
    script = bench("rollout_update")
    rollout, update = script.measure(script.Setting(batch=2, steps=3, max_prompt_length=40))
    assert rollout["same_tokens"] == 1
    ours, other = update["results"]
    assert ours == pytest.approx(other, rel=1e-4) and ours[1] > 0
    assert all(line["ratio"] > 0 and line["peak_share"] > 0 for line in (rollout, update))


@pytest.mark.slow
def test_operations_of_a_step_are_counted_and_the_repeat_does_the_same(
    bench: Callable[[str], ModuleType],
) -> None:
    script = bench("step")
    options = [f"tasks.shapes.{key}=2" for key in ("num_generations", "sampler.steps")]
    options += ["tasks.shapes.num_prompts=1", "per_device_train_batch_size=2", "bf16=false"]
    line = script.measure(script.Setting(options=options, repeats=1))
    assert line["mfu"].keys() == {"rollout", "scoring", "update"} < line["phases_s"].keys()
    assert all(value > 0 for value in line["mfu"].values())
    assert line["step_s"] == pytest.approx(sum(line["phases_s"].values()), abs=1e-3)


@pytest.mark.parametrize("model", ["llada", "sdar"])
def test_a_cache_is_compared_with_none_and_that_of_sdar_is_exact(
    model: str, bench: Callable[[str], ModuleType]
) -> None:
    script = bench("text_sampling")
    path = f"datasets/text/checkpoints/{model}"
    setting = script.Setting(model=path, length=16, block_size=8, steps=8, batch=2, repeats=1)
    plain, *others = script.measure(setting)
    assert plain["ratio"] == plain["same_tokens"] == 1
    if model == "sdar":
        assert [(line["sampling"], line["same_tokens"]) for line in others] == [("exact", 1)]
    else:
        assert [line["sampling"] for line in others] == ["prefix 32", "dual 32"]
        assert all(line["same_first_block"] >= 0.5 for line in others)


def test_rows_that_take_the_places_of_others_have_the_same_tokens(
    bench: Callable[[str], ModuleType],
) -> None:
    script = bench("text_sampling")
    sizes = {"length": 16, "steps": 16, "batch": 2, "repeats": 1, "shortest": 4}
    setting = script.Setting(model="datasets/text/checkpoints/sdar", **sizes)
    waits, refilled = script.measure(setting)
    assert refilled["same_tokens"] == 1 and refilled["forwards"] < waits["forwards"]
    assert waits["lengths"] == refilled["lengths"] and waits["lengths"][2] == 16


@pytest.mark.slow
def test_memory_is_measured_in_each_process_beside_the_estimate_of_the_dry_run(
    bench: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skeleton, script = bench("scripts.make_skeleton"), bench("memory_loading")
    model = tmp_path / "llada"
    sizes = {"layers": 4, "width": 256}
    skeleton.make_skeleton(skeleton.Config(family="llada", out=str(model), **sizes))
    task = "tasks.arithmetic"
    options = ["model.max_prompt_length=256", "per_device_train_batch_size=2"]
    options += [f"{task}.num_prompts=2", f"{task}.num_generations=2", f"{task}.sampler.steps=3"]
    words = [f"model={model}", f"options=[{','.join(options)}]"]
    monkeypatch.setattr("sys.argv", ["memory_loading.py", *words])
    setting = script.Setting(model=str(model), options=options)
    line = script.measure(setting, "configs/accelerate/fsdp2_cpu2.yaml")
    assert line["processes"] == 2 and all(size > 0 for size in line["peak_mib"].values())
    # what else the machine does moves the peaks; measured ratios are in docs/results/speed.md
    assert 0.5 < line["estimate_ratio"] < 1.5, line


@pytest.mark.slow
def test_served_scores_are_those_of_this_process_also_when_the_server_refuses(
    bench: Callable[[str], ModuleType],
) -> None:
    script = bench("reward_service")
    sizes = {"items": 96, "clients": 4, "servers": 1, "batch": 8, "per_request": 4, "repeats": 1}
    throughput, overload = script.measure(script.Setting(**sizes))
    assert throughput["wrong"] == overload["wrong"] == 0
    assert set(throughput["statuses"]) == {200} and overload["statuses"][429] > 0
    assert throughput["ratio"] > 0 and throughput["p50_ms"] <= throughput["p99_ms"]


@pytest.mark.slow
def test_steps_of_latents_are_compared_with_the_transformer_alone(
    bench: Callable[[str], ModuleType],
) -> None:
    script = bench("flow")
    sizes = {"width": 128, "layers": 1, "image_size": 64, "rows": 2, "steps": 3, "repeats": 1}
    lines = list(script.measure(script.Setting(**sizes)))
    assert [(x["measured"], x["way"]) for x in lines] == [
        *(("rollout", way) for way in ("alone", "mmrl")),
        *(("update", way) for way in ("alone", "mmrl")),
    ]
    assert all(line["ratio"] > 0 for line in lines)
