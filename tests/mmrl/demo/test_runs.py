"""Recorded completions of a run, beside those of another step."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from mmrl.config import ConfigError
from mmrl.demo.compare_tab import NONE, compare
from mmrl.rl import train
from mmrl.run.sample_files import find_completions, read_samples
from tests.mmrl.runs import ROOT, World, run_config
from tests.pictures import png

LLADA = ROOT / "datasets" / "text" / "checkpoints" / "llada"
GOOD = {"prompt": "1+1", "completion": "2", "tokens": [5, 6], "trace": [1, 0]}
GOOD |= {"logprobs": [-0.5, 0.0], "reward": 1.0, "advantage": 0.5}
FILE = "sums, step 10"


def write_rows(run: Path, *rows: dict[str, Any], file: str = "completions_sums_000010") -> None:
    """A run directory of the shipped LLaDA with these completions of one step."""
    (run / "samples").mkdir(parents=True, exist_ok=True)
    (run / "config.yaml").write_text(json.dumps({"model": {"path": str(LLADA)}}))
    pq.write_table(pa.Table.from_pylist(list(rows)), run / "samples" / f"{file}.parquet")


def test_completions_come_by_reward_with_every_score(tmp_path: Path) -> None:
    write_rows(tmp_path, {**GOOD, "reward": 0.1}, {**GOOD, "clip": 0.2}, {**GOOD, "reward": None})
    table = compare(tmp_path, FILE)
    assert table["headers"] == ["prompt", "completion", "reward", "advantage"]
    write_rows(tmp_path, {**GOOD, "clip": None, "reward": 0.1}, {**GOOD, "clip": 0.2})
    table = compare(tmp_path, FILE)
    assert table["headers"] == ["prompt", "completion", "reward", "advantage", "clip"]
    assert table["datatype"] == ["str", "str", "number", "number", "number"]
    assert table["value"] == [["1+1", "2", 1.0, 0.5, 0.2], ["1+1", "2", 0.1, 0.5, None]]


def test_images_are_shown_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    images = [{"bytes": x, "path": None} for x in (png(Image.new("RGB", (4, 4))), b"<b>")]
    write_rows(tmp_path, *({**GOOD, "completion": image} for image in images))
    table = compare(tmp_path, FILE)
    assert table["datatype"][:2] == ["str", "html"]
    assert [row[1][:10] for row in table["value"]] == ['<img alt="', "(no image)"]


def test_the_completion_of_another_step_is_beside_that_of_the_same_prompt(tmp_path: Path) -> None:
    write_rows(tmp_path, *({**GOOD, "id": str(n), "completion": f"late {n}"} for n in range(2)))
    early = {"id": "1", "prompt": "1+1", "completion": "early 1", "math": 0.0}
    write_rows(tmp_path, early, file="eval_sums_000000")
    other = "sums, held out, step 0"
    table = compare(tmp_path, FILE, other)
    assert table["headers"][:3] == ["prompt", "completion", other]
    assert [row[:3] for row in table["value"]] == [["1+1", "late 1", "early 1"]]
    with pytest.raises(ConfigError, match="completions is 'gone'"):
        compare(tmp_path, FILE, "gone")
    [path, _] = find_completions(tmp_path).values()
    path.write_bytes(b"PAR1 no")
    with pytest.raises(ConfigError, match="cannot be read"):
        compare(tmp_path, other, NONE)


def test_a_run_records_the_step_the_log_prob_and_the_block_of_every_token(short_run: Path) -> None:
    files = find_completions(short_run)
    rows = read_samples(files["arithmetic, step 2"]).to_pylist()
    count = len(rows[0]["tokens"])
    assert rows[0]["blocks"] == [n // 8 for n in range(count)] and count > 0
    assert len(rows[0]["trace"]) == len(rows[0]["logprobs"]) == count
    shown = compare(short_run, "arithmetic, step 2")
    rewards = [row[shown["headers"].index("reward")] for row in shown["value"]]
    recorded = [row["reward"] for row in rows]
    assert rewards == pytest.approx(sorted(recorded, reverse=True), abs=1e-4)
    assert "arithmetic, held out, step 0" in files


def test_a_run_records_the_step_and_log_prob_of_every_position_of_an_image(
    world: World, tmp_path: Path
) -> None:
    run = train(run_config(world, tmp_path / "run", max_steps=1, save_steps=1))
    [path] = [path for name, path in find_completions(run).items() if "held" not in name]
    row = read_samples(path).to_pylist()[0]
    height, width = row["grid"]
    assert len(row["trace"]) == len(row["logprobs"]) == height * width
    assert max(row["logprobs"]) < 0 and min(row["trace"]) == 0
