"""What follows the model of a run cannot change how the run ends."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from accelerate.tracking import TensorBoardTracker
from huggingface_hub import HfApi
from torch.profiler import profile

from mmrl.config import to_yaml
from mmrl.models import load_vq
from mmrl.sft import main
from mmrl.training import progress
from tests.mmrl.supervised_runs import config

FAULTS = {
    "the report": (progress, "write_report", "python -c 'from mmrl.run.report import"),
    "the model card of": (progress, "write_card", "resume_from_checkpoint=auto writes final/"),
    "the upload of": (HfApi, "create_repo", "hf upload me/model"),
    "the end of tensorboard": (TensorBoardTracker, "finish", "metrics.jsonl"),
    "the profile": (profile, "export_chrome_trace", "profile=true"),
}
"""What fails -> the function that raises, and what the warning advises."""


def fail(*_: object, **__: object) -> None:
    raise RuntimeError("no such luck")


@pytest.mark.parametrize("broken", [[], [*FAULTS]], ids=str)
def test_a_finished_run_ends_with_status_0_whatever_fails_after_its_model(
    broken: list[str], images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "hf_x")
    done: list[str] = []
    monkeypatch.setattr(HfApi, "create_repo", lambda *_, **__: SimpleNamespace(repo_id="me/model"))
    monkeypatch.setattr(HfApi, "upload_folder", lambda *_, **__: done.append("upload"))
    for fault in broken:
        monkeypatch.setattr(*FAULTS[fault][:2], fail)
    run, options = tmp_path / "run", {"report_to": ["tensorboard"], "profile": True}
    options |= {"push_to_hub": True, "hub_model_id": "me/model", "max_steps": 2}
    (tmp_path / "run.yaml").write_text(to_yaml(config(images, run, **options)))
    assert main([f"config={tmp_path / 'run.yaml'}"]) == 0
    assert load_vq(run / "final").codebook_size == 8
    assert (run / "report.html").exists() == ("the report" not in broken)
    assert done == ([] if "the upload of" in broken else ["upload"])
    said = [line for line in (run / "train.log").read_text().splitlines() if "no such luck" in line]
    for fault in broken:
        assert any(f"{fault}" in line and FAULTS[fault][2] in line for line in said), fault
    assert all("WARNING" in line and "failed (RuntimeError" in line for line in said)
