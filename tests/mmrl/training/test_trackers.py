"""What TensorBoard, Trackio and Weights & Biases are shown of a run."""

import io
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import mmrl.run_config
from mmrl.config import ConfigError
from mmrl.rl import train
from mmrl.rollouts.held_out import Evaluation
from mmrl.training.trackers import log_samples
from mmrl.types import Prompt
from tests.mmrl.runs import ROOT, World, command_line, metrics, run_config

NASTY = "</code><script>alert(1)</script>\n```\n# no heading"


def shown(folder: Path) -> EventAccumulator:
    [events] = folder.rglob("*tfevents*")  # TensorBoard lists each folder that has some as a run
    found = EventAccumulator(str(events), size_guidance={"images": 0, "tensors": 0})
    found.Reload()
    return found


def texts() -> Evaluation:
    prompts = [Prompt(str(n), "text", f"question {n}") for n in range(4)]
    return Evaluation(prompts, ["one", "", NASTY, "four"], {"math": [1.0, 0.0, 0.5, 1.0]})


def tracked(folder: Path, name: str, **options: Any) -> Accelerator:
    place = ProjectConfiguration(logging_dir=str(folder / "tensorboard"))
    accelerator = Accelerator(cpu=True, log_with=[name], project_config=place)
    accelerator.init_trackers("mmrl", None, options)
    return accelerator


def test_prometheus_scrapes_the_metrics_of_a_run(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("MMRL_PROMETHEUS_PORT", str(port))
    train(run_config(world, tmp_path, report_to=["prometheus"], eval_steps=0))
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    found = dict(line.split() for line in text.splitlines() if line[0] != "#")
    last = {}
    for line in metrics(tmp_path):
        last |= line
    assert {"step", "loss", "reward"} <= last.keys()
    for key, value in last.items():
        assert float(found["mmrl_" + re.sub(r"\W", "_", key)]) == pytest.approx(value), key


def test_tensorboard_shows_the_metrics_the_grids_and_the_rollouts_of_a_run(
    world: World, tmp_path: Path
) -> None:
    task, run = {"eval_prompts": world.held_out}, tmp_path / "run"
    changes: dict[str, Any] = {"max_steps": 1, "save_steps": 1, "eval_steps": 1, "task": task}
    train(run_config(world, run, report_to=["tensorboard"], **changes))
    found = shown(run / "tensorboard")
    [line] = [line for line in metrics(run) if "loss" in line]
    for name in ("reward", "loss", "eval/shapes/redness"):
        assert name in found.Tags()["scalars"]
    assert found.Scalars("reward")[0].value == pytest.approx(line["reward"])
    grids = found.Images("samples/eval_shapes")
    assert [event.step for event in grids] == [0, 1]
    for event in grids:
        with (
            Image.open(io.BytesIO(event.encoded_image_string)) as seen,
            Image.open(run / "samples" / f"eval_shapes_{event.step:06d}.png") as file,
        ):
            assert seen.convert("RGB").tobytes() == file.tobytes()
    [rollouts] = found.Images("samples/shapes")
    assert rollouts.step == 1 and rollouts.width > grids[0].width / 2


def test_tensorboard_shows_texts_as_they_are_with_their_scores(tmp_path: Path) -> None:
    accelerator = tracked(tmp_path, "tensorboard")
    log_samples(accelerator, "samples/words", 3, texts(), count=4)
    log_samples(accelerator, "samples/few", 3, texts(), count=2)
    log_samples(accelerator, "samples/none", 3, texts(), count=0)
    accelerator.end_training()
    found = shown(tmp_path / "tensorboard")
    assert {tag.split("/")[1] for tag in found.Tags()["tensors"]} == {"words", "few"}
    [event] = found.Tensors("samples/words/text_summary")
    said = event.tensor_proto.string_val[0].decode()
    assert event.step == 3 and said.count("---") == 3
    assert "math 0.5:\n\n" + "".join(f"    {line}\n" for line in NASTY.split("\n")) in said
    assert "question 1" in said and "math 0:\n\n    (empty)" in said
    [event] = found.Tensors("samples/few/text_summary")
    assert event.tensor_proto.string_val[0].decode().count("question") == 2


def test_wandb_shows_the_same_images_and_texts_in_the_run_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    accelerator = tracked(tmp_path, "wandb", wandb={"dir": str(tmp_path), "name": "mine"})
    log_samples(accelerator, "samples/words", 1, texts(), count=4)
    pictures = Evaluation(texts().prompts[:1], [Image.new("RGB", (8, 8), "red")], {"r": [1.0]})
    log_samples(accelerator, "samples/drawn", 1, pictures, count=4)
    accelerator.end_training()
    [media] = tmp_path.glob("wandb/offline-run-*/files/media")
    [table] = media.glob("table/samples/*.json")
    found = json.loads(table.read_text())
    assert found["columns"] == ["prompt", "completion", "math"]
    assert found["data"][2] == ["question 2", NASTY, 0.5]
    [drawn] = media.glob("images/samples/*.png")
    colors = Image.open(drawn).convert("RGB").getcolors(100_000) or []
    assert (255, 0, 0) in {color for _, color in colors}


TRACKED = """
import json, sys
from pathlib import Path
from accelerate import Accelerator
from mmrl import rl
from mmrl.training.trackers import log_samples
from tests.mmrl.training.test_trackers import texts

def forbid(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        raise RuntimeError(f"connects to {arguments[1]}")

sys.addaudithook(forbid)
words = sys.argv[1:]
assert rl.main(words) == 0
assert rl.main([*words, "max_steps=2", "resume_from_checkpoint=auto"]) == 0
accelerator = Accelerator(cpu=True, log_with=["trackio"])
accelerator.init_trackers("words", {}, {"trackio": {"name": "words"}})
log_samples(accelerator, "samples/words", 3, texts(), count=4)
accelerator.end_training()
from trackio.sqlite_storage import SQLiteStorage
read = SQLiteStorage.get_logs
found = {p: {r: read(p, r) for r in SQLiteStorage.get_runs(p)} for p in ("mmrl", "words")}
config = SQLiteStorage.get_run_config("mmrl", "run")
print(json.dumps({**found, "config": config}, default=str))
"""


def test_trackio_shows_metrics_settings_and_samples_without_any_network(
    world: World, tmp_path: Path
) -> None:
    run, store = tmp_path / "run", tmp_path / "trackio"
    words = [*command_line(world, run), "report_to=[trackio]", "max_steps=1", "save_steps=1"]
    words += ["eval_steps=1", f"tasks.shapes.eval_prompts={world.held_out}"]
    env = {**os.environ, "TRACKIO_DIR": str(store), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", TRACKED, *words]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]
    [said] = [line for line in done.stdout.splitlines() if line.startswith("{")]
    found = json.loads(said)
    [(name, lines)] = found["mmrl"].items()
    assert name == "run", "a resumed run goes on in the run that began it"
    rewards = {line["step"]: line["reward"] for line in lines if "reward" in line}
    own = {line["step"]: line["reward"] for line in metrics(run) if "reward" in line}
    assert rewards == pytest.approx(own) and len(own) == 2
    assert json.loads(found["config"]["max_steps"]) in (1, 2)
    grids = [line["step"] for line in lines if "samples/eval_shapes" in line]
    assert {0, 1} <= set(grids)
    with Image.open(next(store.rglob("*.png"))) as grid:
        assert grid.width > 32
    [table] = [line["samples/words"] for line in found["words"]["words"]]
    shown = json.dumps(table)
    assert "question 2" in shown
    assert json.dumps("    </code><script>")[1:-1] in shown, "a block of code, not markup"


def test_a_tracker_that_is_not_installed_is_refused_with_the_command_that_installs_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mmrl.run_config, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"report_to is 'wandb'.*pip install -e \"\.\[wandb\]"):
        run_config(world, tmp_path, report_to=["wandb"])
