"""The two ways that the benchmarks compare do the same work, here at a size of seconds."""

import importlib
import json
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
from omegaconf import OmegaConf

from tests.mmrl.runs import command_line, write_world

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
TINY = {
    "vocabulary": 9000,
    "width": 32,
    "layers": 2,
    "heads": 4,
    "mlp": 48,
    "grid": 4,
    "text_length": 30,
    "prompt_length": 9,
    "steps": 6,
}


@pytest.fixture(scope="module", params=["key_padding", "ignore"])
def words(request: pytest.FixtureRequest) -> list[str]:
    return [f"{key}={value}" for key, value in TINY.items()] + [f"mask_policy={request.param}"]


@pytest.mark.parametrize(
    ("name", "agreement"), [("rollout", "same_canvases"), ("update", "loss_difference")]
)
def test_both_ways_agree_and_each_reports_speed_and_memory(
    name: str,
    agreement: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    setting, bench = importlib.import_module("setting"), importlib.import_module(name)
    size = setting.load_config(setting.Setting, words)
    setting.write_checkpoint(size, tmp_path)
    found = {way: run(bench, way, [*words, f"checkpoint={tmp_path}"], capsys) for way in bench.WAYS}
    assert all(line["tokens_per_s"] > 0 and line["peak_mb"] > 0 for line in found.values())
    quality = bench.quality(*(found[way]["result"] for way in ("ours", "straightforward")))
    assert quality[agreement] is True or quality[agreement] < 1e-4
    if name == "update":
        ours, other = quality["gradient_norms"]
        assert ours == pytest.approx(other, rel=1e-4) and ours > 0


def test_a_line_has_the_versions_of_what_launches_a_run_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    results = importlib.import_module("results")
    assert results.circumstances()["versions"]["accelerate"] == metadata.version("accelerate")
    monkeypatch.setattr(results, "PACKAGES", ("accelerate", "no-such-package"))
    assert results.circumstances()["versions"].keys() == {"python", "torch", "accelerate"}


def run(
    bench: ModuleType, way: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> dict[str, object]:
    original = sys.argv
    sys.argv = [str(BENCH / f"{bench.__name__}.py"), *words, f"way={way}"]
    try:
        bench.compare(bench.__name__, bench.WAYS, bench.quality)
    finally:
        sys.argv = original
    return json.loads(capsys.readouterr().out)


def test_text_sampling_prints_a_line_per_cache_and_window_with_speed_and_agreement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    bench = importlib.import_module("text_sampling")
    sizes = {"vocabulary": 90, "width": 32, "layers": 2, "heads": 4, "mlp": 48, "batch": 2}
    setting = bench.Setting(**sizes, length=12, block_size=4, steps=6, prompt_length=5)
    lines = list(bench.measure(setting))
    assert [(line["cache"], line["window"]) for line in lines] == [
        ("none", None),
        ("prefix", None),
        ("prefix", 32),
        ("dual", None),
        ("dual", 32),
    ]
    assert lines[0]["ratio"] == lines[0]["same_tokens"] == 1
    assert all(line["tokens_per_s"] > 0 and line["cpu_ratio"] > 0 for line in lines)
    # the first block of two steps is one exact step and one with the prompt's cache
    assert all(line["forwards"] == 6 and line["same_first_block"] >= 0.5 for line in lines)


def test_feature_sharing_counts_one_pass_of_the_tower_for_a_group_and_equal_embeddings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    bench = importlib.import_module("feature_sharing")
    tower = {"tile": 16, "patch": 4, "tower_width": 16, "tower_layers": 2, "tower_heads": 2}
    sizes = {**tower, "tower_mlp": 32, "width": 32, "heads": 4, "mlp": 32, "image": [40, 24]}
    line = bench.measure(bench.Setting(**sizes, group=4, micro_batch=2))
    assert (line["tower_passes"], line["naive"]["tower_passes"]) == (1, 4)
    assert line["largest_difference"] == 0
    assert line["phases"].keys() == {"rollout", "score", "update"}
    assert line["ratio"] == pytest.approx(
        sum(phase["ratio"] for phase in line["phases"].values()), abs=0.01
    )
    tiling = bench.Setting()
    assert tiling.tile // tiling.patch == 27 and line["embeddings"] > 16 and line["tiles"] > 1


@pytest.mark.slow
def test_overlap_prints_steps_per_second_of_both_ways_and_that_their_results_are_equal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    bench = importlib.import_module("overlap")
    world = write_world(tmp_path)
    words = [word for word in command_line(world, tmp_path / "run") if "rewards" not in word]
    (tmp_path / "run.yaml").write_text(OmegaConf.to_yaml(OmegaConf.from_dotlist(words)))
    setting = bench.Setting(
        run=str(tmp_path / "run.yaml"),
        groups=3,
        num_generations=2,
        steps=2,
        repeats=1,
        group_s=0.02,
    )
    line = bench.measure(setting, tmp_path)
    assert line["same_results"] and len(line["reward"]) == 2
    assert set(line["steps_per_s"]) == set(line["time/reward_wait_s"]) == {"overlap", "in_turn"}
    # every group is slept for, at least once
    assert all(seconds >= 3 * line["group_s"] * 0.99 for seconds in line["time/reward_s"].values())


@pytest.mark.slow
def test_precision_prints_a_line_for_each_dtype_and_kernel_over_float32_with_sdpa(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    bench = importlib.import_module("precision")
    words = command_line(write_world(tmp_path), tmp_path / "run")
    (tmp_path / "run.yaml").write_text(OmegaConf.to_yaml(OmegaConf.from_dotlist(words)))
    setting = bench.Setting(run=str(tmp_path / "run.yaml"), prompts=1, repeats=1)
    lines = {line["way"]: line for line in bench.measure(setting)}
    assert list(lines) == ["float32 sdpa", "float32 eager", "bfloat16 sdpa", "bfloat16 eager"]
    assert lines["float32 sdpa"]["cpu_ratio"] == 1
    assert all(line["first_step_s"] > 0 and line["step_s"] > 0 for line in lines.values())
