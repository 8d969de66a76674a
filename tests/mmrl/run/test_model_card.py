"""Model cards: what they say of a run, that it can be read by the hub, and that its code runs."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import metadata_load

from mmrl.models import load_policy
from mmrl.models.policy import Policy
from mmrl.rl import train
from mmrl.run.model_card import model_card, write_card
from tests.mmrl.runs import LORA, VQ, run_config, write_world

SETTINGS = {
    "output_dir": "runs/countdown",
    "max_steps": 200,
    "learning_rate": 3e-6,
    "hub_model_id": "me/countdown",
    "model": {"path": "GSAI-ML/LLaDA-8B-Instruct"},
    "tasks": {
        "countdown": {
            "task": "text",
            "algorithm": {"name": "diffu_grpo"},
            "rewards": [{"name": "countdown"}, {"name": "judge", "api_key": "secret"}],
        }
    },
}
METRICS = [
    {"step": 1, "reward": 0.125, "loss": 0.5, "time/step_s": 3.0},
    {"step": 2, "eval/countdown/reward": 0.5},
    {"step": 2, "reward": 0.75, "loss": None},
]


def test_a_card_says_what_was_trained_how_and_with_which_result(tmp_path: Path) -> None:
    text = str(model_card(SETTINGS, METRICS, True, "me/countdown"))
    (tmp_path / "README.md").write_text(text)
    assert metadata_load(tmp_path / "README.md") == {
        "base_model": "GSAI-ML/LLaDA-8B-Instruct",
        "library_name": "peft",
        "tags": ["mmrl", "reinforcement-learning", "masked-diffusion", "lora"],
    }
    assert "| countdown (text) | `diffu_grpo` | `countdown`, `judge` |" in text
    assert (
        "| `reward` | 0.125 | 0.75 |" in text and "| `eval/countdown/reward` | 0.5 | 0.5 |" in text
    )
    assert 'load_policy("me/countdown")' in text
    assert "secret" not in text and "time/step_s" not in text


def test_what_is_no_policy_has_no_card(tmp_path: Path) -> None:
    write_card(tmp_path, None, [])
    assert list(tmp_path.iterdir()) == []


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
        blocks = re.findall(r"```python\n(.*?)```", card, re.S)
        assert len(blocks) == 1 and f'"runs/small/{folder}"' in blocks[0]
        found: dict[str, Policy] = {}
        exec(blocks[0], found)
        vq = found["policy"].layouts["text_to_image"].vq  # type: ignore[attr-defined]
        assert vq.source == str(there / "tokenizers" / "magvit")
    shutil.rmtree(there / "tokenizers")
    assert list(load_policy(run / "final", vq=None).layouts) == ["text"]
    with pytest.raises(FileNotFoundError, match=r"tokenizer_config\.json': vq is '\.\./"):
        load_policy(run / "final")
