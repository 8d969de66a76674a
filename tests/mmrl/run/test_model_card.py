"""Model cards: what they say of a run, that it can be read by the hub, and that its code runs."""

import json
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from huggingface_hub import metadata_load

from mmrl.config import load_config
from mmrl.models import load_policy
from mmrl.models.policy import Policy
from mmrl.rl import RLConfig, train
from mmrl.run.model_card import model_card, write_card
from tests.mmrl.runs import LORA, SHAPES, VQ, run_config, write_world

SETTINGS = {"output_dir": "runs/a", "hub_model_id": "me/countdown", "learning_rate": 3e-6}
TASK = {
    **{"task": "text", "prompts": "me/countdown-prompts", "max_completion_length": 64},
    "sampler": {"name": "static", "steps": 16, "block_size": 8},
    "algorithm": {"name": "diffu_grpo"},
    "rewards": [{"name": "countdown"}, {"name": "judge", "api_key": "secret"}],
}
METRICS: list[dict] = [{"step": 1, "reward": 0.125, "loss": 0.5, "time/step_s": 3.0}]
METRICS += [{"step": 2, "eval/countdown/reward": 0.5}, {"step": 2, "reward": 0.75, "loss": None}]


def test_a_card_says_what_was_trained_how_and_with_which_result(tmp_path: Path) -> None:
    write_card(tmp_path, None, [], 0, tmp_path)
    assert list(tmp_path.iterdir()) == [], "what is no policy has no card"
    base = "GSAI-ML/LLaDA-8B-Instruct"
    adapter = {"base_model_name_or_path": base, "peft_type": "LORA", **LORA}
    (tmp_path / "adapter_config.json").write_text(json.dumps(adapter))
    tasks = {"countdown": TASK, "more": {**TASK, "prompts": "data/prompts.jsonl"}}
    settings = {**SETTINGS, "max_steps": 200, "model": {"path": str(tmp_path)}, "tasks": tasks}
    text = str(model_card(settings, METRICS, "peft", step=30, place="me/countdown"))
    (tmp_path / "README.md").write_text(text)
    assert metadata_load(tmp_path / "README.md") == {
        "base_model": base,
        "library_name": "peft",
        "pipeline_tag": "text-generation",
        "datasets": ["me/countdown-prompts"],
        "tags": ["mmrl", "reinforcement-learning", "masked-diffusion", "lora"],
    }
    row = "| countdown (text) | `me/countdown-prompts` | `diffu_grpo` | `countdown`, `judge` |"
    assert f"{row} `static` |" in text and "Its licence is that of its base." in text
    assert f"A LoRA adapter of `{base}`, continued from `{tmp_path}`, by mmrl, 30 steps at" in text
    assert "SamplerConfig(name='static', steps=16, block_size=8)" in text
    assert "| `reward` | 0.125 | 0.75 |" in text
    assert "| `eval/countdown/reward` | 0.5 | 0.5 |" in text
    assert 'load_policy("me/countdown")' in text
    text = str(model_card(settings, METRICS, "peft", step=30, place="me/two", part="painter"))
    assert 'load_policy(snapshot_download("me/two") + "/painter")' in text
    assert "secret" not in text and "time/step_s" not in text


@pytest.mark.parametrize("options", [{}, {"lora": LORA}], ids=["whole", "adapter"])
def test_the_code_of_a_card_loads_what_a_run_has_trained_also_where_all_was_moved(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    shutil.copytree(VQ, here / "tokenizers" / "magvit")
    world = write_world(here / "start")
    monkeypatch.chdir(here)
    changes = {"model": {"vq": "tokenizers/magvit"}, "max_steps": 1, "save_steps": 1, **options}
    run = train(run_config(world, Path("runs/small"), **changes))
    for file in run.rglob("adapter_config.json"):  # which peft wants absolute
        file.write_text(file.read_text().replace(str(here), str(there)))
    here.rename(there)
    monkeypatch.chdir(there)
    for folder in ("final", "checkpoints/1"):
        card = (run / folder / "README.md").read_text()
        assert "pipeline_tag: text-to-image" in card and " by mmrl, 1 step at" in card
        blocks = re.findall(r"```python\n(.*?)```", card, re.S)
        assert len(blocks) == 1 and f'"runs/small/{folder}"' in blocks[0]
        found: dict[str, Policy] = {}
        exec(blocks[0], found)
        assert found["completion"].size == (32, 32)  # type: ignore[attr-defined]
        vq = found["policy"].layouts["text_to_image"].vq  # type: ignore[attr-defined]
        assert vq.source == str(there / "tokenizers" / "magvit")
    shutil.rmtree(there / "tokenizers")
    assert list(load_policy(run / "final", vq=None).layouts) == ["text"]
    with pytest.raises(FileNotFoundError, match=r"tokenizer_config\.json': vq is '\.\./"):
        load_policy(run / "final")


@pytest.mark.parametrize("lora", [None, LORA], ids=["pipeline", "adapter"])
def test_a_pipeline_and_its_adapter_have_a_card_whose_code_draws(
    lora: dict[str, Any] | None, tmp_path: Path
) -> None:
    base = tmp_path / "base"
    shutil.copytree(SHAPES / "checkpoints" / "flow", base)
    (base / "README.md").write_text("---\nlicense: openrail++\n---\n")
    words = ["config=configs/rl/shapes_flow_brightness.yaml", f"model.path={base}", "max_steps=2"]
    task = "num_prompts: 2, num_generations: 4, rollout_batch_size: 8, eval_limit: 4"
    words += [f"output_dir={tmp_path / 'run'}", f"tasks.shapes={{{task}}}", "eval_steps=1"]
    words += ["per_device_train_batch_size=4", "bf16=false", *["model.lora={r: 4}"] * bool(lora)]
    final = train(load_config(RLConfig, words)) / "final"
    card, head = (final / "README.md").read_text(), metadata_load(final / "README.md")
    assert head["library_name"] == ("peft" if lora else "diffusers")
    assert head["license"] == "openrail++" and head["pipeline_tag"] == "text-to-image"
    assert "flow-matching" in head["tags"] and "The licence of its base: openrail++." in card
    curves = ElementTree.parse(final / "curves.svg")
    assert "![" in card and curves.getroot().tag.endswith("svg")
    found: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", card, re.S)[0], found)
    assert found["completion"].size == (32, 32)
