"""DPG-Bench behind `mmrl.eval_v`: a small generator, a real server, categories in the table."""

import json
from pathlib import Path

import pytest

from mmrl.eval_v import main
from tests.mmrl.data.test_dpg_bench import HEAD
from tests.rewards.judge_server import counts, judge_server

QUESTIONS = [
    "a,a red circle,,1,0,entity,whole,t,is there red or blue?\n",
    "a,a red circle,,2,1,attribute,color,t,is it red?\n",
    "b,a blue ring,,1,0,entity,whole,t,is it blue?\n",
]


@pytest.mark.slow
def test_dpg_bench_is_scored_by_image_and_by_category(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dpg_bench.csv").write_text(HEAD + "".join(QUESTIONS))
    checkpoints = "datasets/shapes/checkpoints"
    command = [
        "config=configs/eval/mmada_dpg.yaml",
        f"output_dir={tmp_path / 'out'}",
        f"prompts={tmp_path / 'dpg_bench.csv'}",
        f"model={{path: {checkpoints}/mmada, vq: {checkpoints}/magvit, dtype: float32}}",
        "model.image_size=null",
        "sampler={steps: 2, cfg_scale: 0}",
    ]
    with judge_server() as url:
        entry = f"{{name: dsg, model: colours, urls: ['{url}'], cache_dir: {tmp_path / 'cache'}}}"
        assert main([*command, f"rewards=[{entry}]"]) == 0
        assert main([*command, f"rewards=[{entry}]"]) == 0
        asked = counts(url)["asked"]["colours"]
    said = capsys.readouterr().out
    scores = json.loads((tmp_path / "out" / "scores.json").read_text())
    assert len(scores["samples"]) == 8 and asked <= 12, "an answer is asked for once"
    rows = scores["categories"]["dsg"]["score"]
    assert {row: rows[row]["n"] for row in rows} == {
        "attribute": 4,
        "entity": 8,
        "attribute - color": 4,
        "entity - whole": 8,
        "mean over prompts": 8,
    }
    mean = sum(sample["dsg"] for sample in scores["samples"]) / 8
    assert rows["mean over prompts"]["mean"] == pytest.approx(mean)
    assert "dsg x 100" in said and "attribute - color" in said
