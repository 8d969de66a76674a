"""`dry_run=true` of supervised training."""

from pathlib import Path

import pytest

from mmrl.config import to_yaml
from mmrl.models.image_tokenizers.magvit import MagvitConfig, MagvitV2
from mmrl.sft import main
from scripts.miniature.reconstruction import Reconstruction
from tests.mmrl.supervised_runs import NETWORK, config


def test_a_dry_run_prints_the_plan_and_touches_nothing(
    images: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Reconstruction, "__init__", lambda *_, **__: pytest.fail("a network"))
    changes = {"gradient_accumulation_steps": 3, "dry_run": True}
    (tmp_path / "plan.yaml").write_text(to_yaml(config(images, tmp_path / "run", **changes)))
    words = [f"config={tmp_path / 'plan.yaml'}"]
    assert main(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    count = sum(p.numel() for p in MagvitV2(MagvitConfig(**NETWORK)).parameters())
    for promise in (
        "4 steps from the first step",
        f"scripts.miniature:VQ: 12 images of {images}",
        f"network {count:,} parameters",
        "15 examples: 3 micro-batches of 5",
        "adamw, learning rate 0.01, cosine after 1 steps of warm-up",
        "checkpoint every 2 steps",
    ):
        assert promise in said, promise
    assert not (tmp_path / "run").exists()
