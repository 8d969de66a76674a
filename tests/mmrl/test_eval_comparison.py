"""Several checkpoints behind one command: the same prompts and seeds, and what differs."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mmrl import eval as text
from mmrl import eval_v as vision
from mmrl.evaluation import benchmark
from mmrl.models import load_policy
from mmrl.pretrained.model_config import LoraConfig, ModelConfig
from mmrl.training.trainable import train_parts
from tests.mmrl.pair import Pair
from tests.mmrl.runs import SHAPES
from tests.mmrl.test_eval import numbers, words

TEXTS = ["a red circle", "two green squares", "a purple ring", "a blue cross"]
EVEN = "rewards=[{name: tests/mmrl/test_eval.py:even, key: parity}]"


@pytest.fixture(scope="module")
def models(world: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the policy, and one with other weights."""
    folder = tmp_path_factory.mktemp("models")
    policy = load_policy(world.policy, vq=None)
    policy.save(folder / "same" / "final")
    generator = torch.Generator().manual_seed(1)
    for weight in policy.model.parameters():
        weight.data.normal_(std=0.05, generator=generator)
    policy.save(folder / "other" / "final")
    return folder


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    rows = [{"prompt": each, "id": f"p{n}", "answer": "1"} for n, each in enumerate(TEXTS)]
    (tmp_path / "text.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(tmp_path / "text.jsonl")


def compare(world: SimpleNamespace, prompts: str, out: Path, models: Path) -> list[str]:
    others = [models / "same" / "final", models / "other" / "final"]
    command = [*words(world, prompts, out), EVEN, "settings=[{label: long}]"]
    return [*command, f"compare_to={json.dumps([*map(str, others)])}"]


def test_checkpoints_are_compared_on_the_same_draws(
    world: SimpleNamespace,
    prompts: str,
    models: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, alone = tmp_path / "out", tmp_path / "alone"
    assert text.main(compare(world, prompts, out, models)) == 0
    said = capsys.readouterr().out
    content = json.loads((out / "comparison.json").read_text())
    first = content["first"]
    assert set(content["checkpoints"]) == {first, "same-final", "other-final"}
    assert text.main([*compare(world, prompts, alone, models), "compare_to=[]"]) == 0
    assert numbers(out / first) == numbers(out / "same-final") == numbers(alone)
    rows = content["differences"]["same-final"]["long"]["parity"]
    assert (rows["difference"], rows["stderr"], rows["n"]) == (0, 0, 4)
    rows = content["differences"]["other-final"]["long"]["parity"]
    means = [scores(out / each, "long") for each in (first, "other-final")]
    assert numbers(out / first)["samples"] != numbers(out / "other-final")["samples"]
    assert rows["difference"] == pytest.approx(means[0] - means[1])
    assert f"first: {first}, second: other-final" in said and "95 % interval" in said
    assert said.startswith((out / "comparison.txt").read_text())


def scores(folder: Path, setting: str) -> float:
    found = [sample["scores"]["parity"] for sample in numbers(folder)["samples"][setting]]
    return sum(found) / len(found)


@pytest.mark.slow
def test_a_checkpoint_that_is_added_is_the_only_one_that_is_sampled(
    world: SimpleNamespace,
    prompts: str,
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = [*compare(world, prompts, tmp_path / "out", models), "limit=2", "settings=[{}]"]
    sampled: list[Any] = []
    sample_batch = benchmark.sample_batch

    def counted(*arguments: Any) -> Any:
        sampled.append(arguments[0])
        return sample_batch(*arguments)

    monkeypatch.setattr(benchmark, "sample_batch", counted)
    assert text.main([*command, f"compare_to=[{models / 'same' / 'final'}]", "batch_size=4"]) == 0
    assert len(sampled) == 2
    assert text.main([*command, "batch_size=4"]) == 0
    assert len(sampled) == 3


@pytest.mark.slow
def test_an_adapter_is_compared_with_its_base_and_with_itself_merged(
    world: SimpleNamespace, prompts: str, tmp_path: Path
) -> None:
    policy = load_policy(world.policy, vq=None)
    settings = ModelConfig(path=world.policy, lora=LoraConfig(r=4))
    train_parts(policy.model, settings, seed=0)
    generator = torch.Generator().manual_seed(1)
    for weight in filter(lambda weight: weight.requires_grad, policy.model.parameters()):
        weight.data.normal_(std=0.5, generator=generator)
    policy.save(tmp_path / "run" / "adapter")
    assert not list((tmp_path / "run" / "adapter").glob("model*"))
    load_policy(tmp_path / "run" / "adapter", vq=None).save(tmp_path / "run" / "merged")
    paths = [str(tmp_path / "run" / "merged"), world.policy]
    command = [*words(world, prompts, tmp_path / "out"), EVEN, f"compare_to={json.dumps(paths)}"]
    assert text.main([*command, f"model.path={tmp_path / 'run' / 'adapter'}"]) == 0
    content = json.loads((tmp_path / "out" / "comparison.json").read_text())
    first, merged, base = (numbers(tmp_path / "out" / name) for name in content["checkpoints"])
    assert first["samples"] == merged["samples"] != base["samples"]
    rows = content["differences"]["run-merged"]["long"]["parity"]
    assert (rows["difference"], rows["stderr"], rows["n"]) == (0, 0, 4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("compare_to=[{policy}]", "compare_to[0] is '{policy}'; it must be another checkpoint"),
        ("compare_to=[a/b, a/b]", "compare_to[1] is 'a/b'; it must be another checkpoint"),
        ("compare_to=['']", "compare_to[0] is ''; it must be a directory or a hub id"),
        ("compare_to=[./nowhere]", "model.path is './nowhere'"),
    ],
)
def test_a_checkpoint_twice_or_one_that_is_missing_is_refused_before_one_loads(
    world: SimpleNamespace,
    prompts: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: str,
    message: str,
) -> None:
    change, message = (part.replace("{policy}", world.policy) for part in (change, message))
    assert text.main([*words(world, prompts, tmp_path / "out"), change]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_dry_run_names_all_checkpoints(
    world: SimpleNamespace,
    prompts: str,
    models: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = compare(world, prompts, tmp_path / "out", models)
    assert text.main([*command, "dry_run=true"]) == 0
    said = capsys.readouterr().out
    assert f"policy      {world.policy}," in said
    assert f"policy      {models / 'same' / 'final'}," in said
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_image_checkpoints_are_compared(tmp_path: Path) -> None:
    policy = load_policy(SHAPES / "checkpoints" / "mmada", vq=None)
    generator = torch.Generator().manual_seed(1)
    for weight in policy.model.parameters():
        weight.data += 0.02 * torch.randn(weight.shape, generator=generator)
    policy.save(tmp_path / "noisy")
    command = ["config=configs/eval/shapes_t2i.yaml", "limit=12", "sampler.steps=4"]
    command += [f"output_dir={tmp_path / 'out'}", f"compare_to=[{tmp_path / 'noisy'}]"]
    assert vision.main([*command, f"geneval_dir={tmp_path / 'folders'}"]) == 0
    content = json.loads((tmp_path / "out" / "comparison.json").read_text())
    rows = content["differences"][f"{tmp_path.name}-noisy"]["emerge"]["partial"]
    for name in ("checkpoints-mmada", f"{tmp_path.name}-noisy"):
        assert (tmp_path / "folders" / name / "00011" / "samples" / "00000.png").is_file()
        mean = content["tables"][name]["partial"]["mean over prompts"]["mean"]
        side = "first" if name.endswith("mmada") else "second"
        assert rows[side] == pytest.approx(mean)


@pytest.mark.slow
def test_two_processes_that_share_each_checkpoint_give_the_comparison_of_one(
    world: SimpleNamespace, prompts: str, models: Path, sharing_pair: Pair, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    sharing_pair.begin("mmrl.eval", compare(world, prompts, two, models))
    assert text.main(compare(world, prompts, one, models)) == 0
    printed = "".join(sharing_pair.end())
    first, second = (json.loads((out / "comparison.json").read_text()) for out in (one, two))
    assert first["differences"] == second["differences"] and printed.count("written to") == 1
