"""Texts token by token, and what a run records of how it wrote."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mmrl.config import ConfigError, load_config
from mmrl.demo.checkpoints import Checkpoints
from mmrl.demo.run_files import find_completions, read_completions
from mmrl.demo.trace_viewer import show_traces
from mmrl.demo.traces import Trace
from mmrl.demo.write_tab import write
from mmrl.demo.written import MASKED, describe_position, write_tokens
from mmrl.pretrained.model_config import ModelConfig
from mmrl.rl import train
from mmrl.rl_config import RLConfig
from tests.mmrl.runs import run_config

ROOT = Path(__file__).resolve().parents[3]
LLADA = ROOT / "datasets" / "text" / "checkpoints" / "llada"
RECIPE, SUMS = ROOT / "configs" / "rl" / "text_arithmetic.yaml", "tasks.arithmetic"
TEXT = Trace("a<b>", [2, 0, 1], [0.0, -1.0, -9.0], ["a", "<b>", "\n"], 3, blocks=(0, 0, 1))


def test_tokens_appear_with_their_step_and_what_a_model_wrote_is_escaped() -> None:
    assert write_tokens(TEXT, 0).count(MASKED) == 3
    page = write_tokens(TEXT, 1)
    assert page.count(MASKED) == 2 and "&lt;b&gt;" in page and "<b>" not in page
    page = write_tokens(TEXT, 3, "log-prob")
    assert MASKED not in page and "⏎" in page and page.count("<i></i>") == 1
    assert describe_position(TEXT, 1) == "position 2, block 1: step 1, probability 0.368"


def test_the_viewer_has_the_name_and_the_tokens_of_each_trace() -> None:
    page = show_traces({"<llada>": TEXT, "other": TEXT}, 3, "step")
    assert "&lt;llada&gt;" in page and page.count('class="tokens"') == 2
    assert show_traces({}, 0, "step") == ""


def test_texts_are_written_with_the_blocks_of_the_sampler() -> None:
    model = ModelConfig(path=str(LLADA), vq=None, max_prompt_length=32)
    offered = Checkpoints({"llada": model}, "cpu", 1)
    sampler = ["static", 4, 0.0, 0.0, "block_size=8 cache=dual"]
    [trace] = write(offered, ["llada"], "compute 4*4", *sampler, 0, 16).values()
    assert trace.tokens and trace.blocks == tuple(n // 8 for n in range(len(trace.tokens)))


def write_rows(run: Path, *rows: dict[str, Any]) -> None:
    """A run directory of the shipped LLaDA with these completions of one step."""
    (run / "samples").mkdir(parents=True)
    (run / "config.yaml").write_text(json.dumps({"model": {"path": str(LLADA)}}))
    table = pa.Table.from_pylist(list(rows))
    pq.write_table(table, run / "samples" / "completions_sums_000010.parquet")


GOOD = {"prompt": "1+1", "completion": "2", "tokens": [5, 6], "written_at": [1, 0]}
GOOD |= {"logprobs": [-0.5, 0.0], "reward": 1.0, "advantage": 0.5}


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    write_rows(tmp_path, GOOD)
    [path] = find_completions(tmp_path).values()
    path.write_bytes(b"PAR1 no")
    with pytest.raises(ConfigError, match="holds no completions"):
        read_completions(path)


def test_a_run_records_the_step_the_log_prob_and_the_block_of_every_token(tmp_path: Path) -> None:
    words = [f"config={RECIPE}", f"output_dir={tmp_path / 'run'}", "max_steps=1", "eval_steps=0"]
    words += [f"{SUMS}.{key}" for key in ("num_prompts=1", "num_generations=2", "eval_prompts=''")]
    words += ["per_device_train_batch_size=2", "save_steps=1"]
    files = find_completions(train(load_config(RLConfig, words)))
    row = read_completions(files["arithmetic, step 1"])[0]
    count = len(row["tokens"])
    assert row["blocks"] == [n // 8 for n in range(count)] and count > 0
    assert len(row["written_at"]) == len(row["logprobs"]) == count


def test_a_run_records_the_step_and_log_prob_of_every_position_of_an_image(
    world: SimpleNamespace, tmp_path: Path
) -> None:
    run = train(run_config(world, tmp_path / "run", max_steps=1, save_steps=1))
    [rows] = [
        read_completions(path) for n, path in find_completions(run).items() if "held" not in n
    ]
    height, width = rows[0]["grid"]
    assert len(rows[0]["written_at"]) == len(rows[0]["logprobs"]) == height * width
    assert max(rows[0]["logprobs"]) < 0 and min(rows[0]["written_at"]) == 0
