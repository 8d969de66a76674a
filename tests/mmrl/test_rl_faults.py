"""What a run does with bad input, failing rewards and a full disk."""

import json
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from mmrl.rewards import REWARDS
from mmrl.rl import main, train
from mmrl.run.run_lock import lock_directory
from mmrl.training.trainer import Trainer
from mmrl.types import Sample
from tests.mmrl.runs import World, command_line, loadable, metrics, redness, run_config


@pytest.fixture
def failed(capsys: pytest.CaptureFixture[str]) -> Callable[[list[str]], str]:
    """The one line a run ends with that cannot be run."""

    def fail(words: list[str]) -> str:
        capsys.readouterr()
        assert main(words) == 1
        message = capsys.readouterr().err.strip().splitlines()[-1]
        assert message.startswith("error: "), message
        return message

    return fail


BAD_SETTINGS = [
    (["learning_rat=1"], ["learning_rat", "Did you mean 'learning_rate'?"]),
    (["max_steps=many"], ["max_steps", "many"]),
    (["learning_rate=.inf"], ["learning_rate is inf", "finite"]),
    (["per_device_train_batch_size=3"], ["per_device_train_batch_size is 3", "[1, 2, 4, 8]"]),
    (["eval_steps=5"], ["eval_steps is 5", "tasks.<name>.eval_prompts"]),
    (["tasks.shapes.sampler.name=emerg"], ["tasks.shapes.sampler.name", "Did you mean 'emerge'?"]),
    (["tasks.shapes.rewards=[]"], ["tasks.shapes.rewards is empty", "{name: clip}"]),
    (["tasks.shapes.rewards=[{name: shapes, mod: x}]"], ["tasks.shapes.rewards[0].mod", "mode"]),
    (["tasks.shapes.rewards=[{name: shapes},{name: shapes}]"], ["more than once", "`key`"]),
    (["model.vq=null"], ["model.vq is None", "an image tokenizer"]),
    (["resume_from_checkpoint=nowhere"], ["resume_from_checkpoint", "nowhere", "auto"]),
    (["config=configs/rl/nothing.yaml"], ["configs/rl/nothing.yaml", "no such file"]),
    (["quickly"], ["'quickly'", "key=value"]),
    (["tasks=[{a: 1"], ["tasks=[{a: 1", "Close brackets and quotes"]),
    (["output_dir=???"], ["output_dir is '???'", "leave the word out"]),
]


@pytest.mark.parametrize(("words", "named"), BAD_SETTINGS, ids=lambda value: value[0])
def test_a_setting_that_cannot_run_is_named_before_any_model_loads(
    words: list[str],
    named: list[str],
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failed: Callable,
) -> None:
    monkeypatch.setattr("mmrl.models.load_policy", lambda *_, **__: pytest.fail("loaded"))
    message = failed([*command_line(world, tmp_path / "run"), *words])
    for word in named:
        assert word in message
    assert not (tmp_path / "run").exists()


def test_a_prompt_that_the_reward_cannot_score_is_named_before_the_policy_loads(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: Callable
) -> None:
    monkeypatch.setattr("mmrl.models.load_policy", lambda *_, **__: pytest.fail("loaded"))
    clauses = [{"class": name, "count": 1} for name in ("ring", "bus", "square")]
    rows = [{"prompt": "one", "tag": "single_object", "include": [clause]} for clause in clauses]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = command_line(world, tmp_path / "run")
    for key in ("prompts", "eval_prompts"):
        message = failed([*words, f"tasks.shapes.{key}={tmp_path}/rows.jsonl"])
        assert "rows.jsonl, line 2 cannot be scored by reward 'shapes'" in message
        assert "class is 'bus'" in message and "1 such prompts of" in message


def test_a_directory_that_holds_a_run_is_not_written_over(
    world: World, tmp_path: Path, failed: Callable
) -> None:
    words = [*command_line(world, tmp_path / "run"), "max_steps=1"]
    assert main([*words, "save_steps=1"]) == 0
    before, resume = metrics(tmp_path / "run"), "resume_from_checkpoint=auto"
    message = failed(words)
    assert "output_dir" in message and f"{resume} and a larger max_steps" in message
    shutil.rmtree(tmp_path / "run" / "final")
    assert f"already holds a run. Continue it with {resume}," in failed(words)
    other = shutil.copytree(tmp_path / "run" / "checkpoints" / "1", tmp_path / "1")
    assert "already holds a run" in failed([*words, f"resume_from_checkpoint={other}"])
    assert metrics(tmp_path / "run") == before
    assert main([*words, resume, "save_steps=1"]) == 0


@pytest.mark.slow
def test_a_checkpoint_of_other_settings_is_not_resumed_from(
    world: World, tmp_path: Path, failed: Callable
) -> None:
    words = [*command_line(world, tmp_path / "run"), "max_steps=1", "save_steps=1"]
    assert main(words) == 0
    again, settings = [*words, "resume_from_checkpoint=auto"], tmp_path / "run" / "config.yaml"
    again, before = [*again, "max_steps=2"], settings.read_text()
    assert "model.lora.r was None and is 4" in failed([*again, "model.lora.r=4"])
    assert settings.read_text() == before, "a run that is refused changes nothing"
    assert "cannot be resumed from" in failed(
        [*again, "model.lora.r=4", "resume_with_changes=true"]
    )
    assert "seed was 0 and is 7" in failed([*again, "seed=7"])
    checkpoint = tmp_path / "run" / "checkpoints" / "1"
    state = checkpoint / "trainer_state.pt"
    whole = state.read_bytes()
    for place in (whole.index(b"emerge"), len(whole) // 2):
        state.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert "cannot be resumed from" in failed(again)
    for wrong in ([], {"step": -5}, {"step": "1"}):
        torch.save(wrong, state)
        assert "cannot be resumed from" in failed(again)
    state.write_bytes(whole)
    assert main([*again, "seed=7", "resume_with_changes=true"]) == 0


@pytest.mark.parametrize("what", ["weights", "moments"])
def test_a_last_step_that_diverges_is_not_saved(
    what: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: Callable
) -> None:
    update = Trainer.update

    def diverging(self: Trainer, batches: Any) -> dict[str, float]:
        values = update(self, batches)
        weight = next(self.trained.parameters())
        if self.step == 2:
            state = self.optimizers[0].state[weight]
            (weight.data if what == "weights" else state["exp_avg"]).view(-1)[3] = torch.inf
        return values

    monkeypatch.setattr(Trainer, "update", diverging)
    run = tmp_path / "run"
    said = failed([*command_line(world, run), "max_steps=2", "save_steps=1"])
    assert "after step 2" in said and "no longer finite" in said
    assert not (run / "final").exists() and not (run / "checkpoints" / "2").exists()
    for tensor in load_file(run / "checkpoints" / "1" / "model.safetensors").values():
        assert bool(torch.isfinite(tensor).all())


def test_a_directory_has_one_run_at_a_time(world: World, tmp_path: Path, failed: Callable) -> None:
    run = tmp_path / "run"
    words = [*command_line(world, run), "max_steps=1"]
    with lock_directory(run):
        said = failed(words)
        assert f"output_dir is '{run}', where another run is writing" in said
        assert [path.name for path in run.iterdir()] == [".lock"]
    assert not run.exists()
    run.mkdir()
    (run / ".lock").write_text('{"pid": 1, "host": "gone", "since": "long ago"}')
    assert main(words) == 0, "a lock that a killed run has left holds nobody up"
    assert not (run / ".lock").exists()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", "ZeroDivisionError('no pixels left')"),
        ("short", "returned 7 scores for 8 samples"),
    ],
)
def test_a_failing_reward_stops_the_run_and_leaves_the_last_checkpoint(
    how: str,
    said: str,
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failed: Callable,
) -> None:
    monkeypatch.setitem(REWARDS, "broken", "tests.mmrl.failing_rewards:BrokenReward")
    run = tmp_path / "run"
    words = [*command_line(world, run), "save_steps=1", "max_steps=4"]
    rewards = f"tasks.shapes.rewards=[{{name: broken, how: {how}}}]"
    message = failed([*words, rewards])
    assert "reward 'broken' failed" in message and said in message and "max_failures" in message
    assert loadable(run) == [1, 2]
    repaired = f"tasks.shapes.rewards=[{{name: broken, how: {how}, after: 100}}]"
    assert main([*words, repaired, "resume_from_checkpoint=auto"]) == 0


def test_allowed_failures_are_counted_and_never_a_zero(world: World, tmp_path: Path) -> None:
    def sometimes(samples: list[Sample]) -> list[float | None]:
        return [float("nan"), None, *redness(samples)[2:]]

    task = {"rewards": [{"name": "some", "reward": sometimes}], "max_failures": 0.5}
    train(run_config(world, tmp_path / "run", max_steps=1, task=task))
    [line] = metrics(tmp_path / "run")
    assert (line["rewards/some/failures"], line["rewards/some/none"]) == (1, 1)
    assert line["reward"] > 0.2


@contextmanager
def room_for_small_files() -> Iterator[None]:
    """Give back at the end what `fill_disk` has taken."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def fill_disk(limit: int = 100_000) -> None:
    """Let no file grow beyond the limit, which is what writing to a full disk comes down to."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def test_a_full_disk_leaves_the_last_checkpoint_to_resume_from(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: Callable
) -> None:
    original, run = Trainer.save, tmp_path / "run"

    def save(self: Trainer, folder: Path) -> None:
        if self.step == 4:
            fill_disk()
        original(self, folder)

    words = [*command_line(world, run), "save_steps=2", "max_steps=6"]
    with room_for_small_files(), monkeypatch.context() as patch:
        patch.setattr(Trainer, "save", save)
        message = failed(words)
    assert "checkpoints/4" in message and "earlier checkpoints are intact" in message
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["2"]
    assert loadable(run) == [2]
    assert main([*words, "resume_from_checkpoint=auto"]) == 0
