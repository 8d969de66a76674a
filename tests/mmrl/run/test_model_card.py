"""Model cards: what they say of a run, and that it can be read by the hub."""

from pathlib import Path

from huggingface_hub import metadata_load

from mmrl.run.model_card import model_card, write_card

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
    text = model_card(SETTINGS, METRICS, adapter=True)
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
    assert 'PeftModel.from_pretrained(base, "me/countdown")' in text
    assert "secret" not in text and "time/step_s" not in text


def test_the_licence_is_that_of_a_source_with_a_card(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "README.md").write_text("---\nlicense: mit\n---\nA model.\n")
    settings = {**SETTINGS, "model": {"path": str(base)}}
    (tmp_path / "README.md").write_text(model_card(settings, [], adapter=False))
    head = metadata_load(tmp_path / "README.md")
    assert head is not None and head["license"] == "mit" and "base_model" not in head
    assert head["library_name"] == "transformers"
    (base / "README.md").write_text("---\n[broken\n---\n")
    assert "license" not in model_card(settings, [], adapter=False)


def test_what_is_no_policy_has_no_card(tmp_path: Path) -> None:
    write_card(tmp_path, None, [])
    assert list(tmp_path.iterdir()) == []
