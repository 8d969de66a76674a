"""What an evaluation needs, before anything is loaded."""

from pathlib import Path

import pytest

from mmrl.evaluation.eval_config import TEXT_TASKS, VISION_TASKS, load_settings
from mmrl.models import load_model
from mmrl.preflight.eval_plan import describe, estimate_memory
from mmrl.preflight.public_sizes import LLADA_8B

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_weights_are_those_of_the_checkpoint_and_logits_those_of_a_guided_batch() -> None:
    words = ["config=configs/eval/shapes_t2i.yaml", "sampler.cfg_scale=2", "batch_size=8"]
    config = load_settings(words, VISION_TASKS)
    network = load_model(config.model.path)
    found = estimate_memory(config, network.public_config)
    assert found["weights"] == 4 * sum(p.numel() for p in network.parameters())
    assert found["logits"] == 2 * 8 * 4 * 4 * 64 * network.public_config["codebook_size"]
    assert set(found) == {"weights", "logits"}


def test_a_cache_holds_keys_and_values_of_all_blocks() -> None:
    config = load_settings(["config=configs/eval/llada_humaneval.yaml"], TEXT_TASKS)
    found = estimate_memory(config, LLADA_8B)
    assert found["weights"] == pytest.approx(16.03e9, rel=0.01)
    assert found["cache"] == 2 * 16 * (1024 + 1024) * 4096 * 32 * 2


def test_a_dry_run_says_what_a_checkpoint_of_the_hub_takes(tmp_path: Path) -> None:
    words = ["config=configs/eval/llada_gsm8k.yaml", f"output_dir={tmp_path / 'out'}"]
    words.append("model.path=Gen-Verse/MMaDA-8B-MixCoT")
    config = load_settings(words, TEXT_TASKS)
    said = " ".join(str(describe(config)).split())
    assert "Gen-Verse/MMaDA-8B-MixCoT, not on this machine: loaded from the hub; sizes are" in said
    assert "32 steps" not in said and "16 rows each" in said and "batches" not in said
    assert "downloads 15.06 GiB Gen-Verse/MMaDA-8B-MixCoT" in said
    assert f"free in {tmp_path}" in said
