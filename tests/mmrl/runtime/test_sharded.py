"""FSDP2 and DeepSpeed ZeRO on two processes against one: equal runs, whole checkpoints, resume."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mmrl.models import load_policy
from mmrl.objectives.masked import Masked
from tests.mmrl.pair import Pair
from tests.mmrl.runs import VQ, World, metrics, same_weights
from tests.mmrl.same_runs import close, equal_metrics, same_rollouts
from tests.mmrl.sharded_runs import KINDS, RL, STOPPED, reinforce, supervise

Runs = Callable[[str, str], SimpleNamespace]
PAIRS = {"fsdp2": "sharing_pair", "zero2": "zero2_pair", "zero3": "zero3_pair"}
EVERY = [(way, kind) for way, kinds in KINDS.items() for kind in kinds]
every_way = pytest.mark.parametrize(("way", "kind"), EVERY)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def run_alone(world: World, folder: Path) -> Callable[[str], Path]:
    """A run of a kind of `sharded_runs`, of one process."""

    @functools.cache
    def run(kind: str) -> Path:
        one = folder / "one"
        if kind == "sft":
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Masked, "batch", both_shares(Masked.batch))
                supervise(world, one / "sft", gradient_accumulation_steps=2)
        else:
            reinforce(world, one / kind, kind)
        return one

    return run


@pytest.fixture(scope="module")
def runs_of(
    world: World, run_alone: Callable[[str], Path], folder: Path, request: pytest.FixtureRequest
) -> Runs:
    """All runs of a kind: of `one` process and of `two` that share the model in some way."""

    @functools.cache
    def runs(way: str, kind: str) -> SimpleNamespace:
        both: Pair = request.getfixturevalue(PAIRS[way])
        one, two = run_alone(kind), folder / way
        both.begin(
            "tests.mmrl.sharded_runs", [str(Path(world.policy).parent), *map(str, (two, one)), kind]
        )
        both.end()
        return SimpleNamespace(one=one, two=two)

    return runs


def both_shares(batch: Callable) -> Callable:
    """The micro-batches of one process as those of two: corruption is drawn per process."""

    def shares(self: Masked, index: int, rank: int, world_size: int) -> list:
        return batch(self, index // 2, index % 2, 2)

    return shares


@pytest.mark.slow
@every_way
def test_two_sharded_processes_sample_score_and_train_as_one(
    runs_of: Runs, way: str, kind: str
) -> None:
    runs = runs_of(way, kind)
    one, two = runs.one / kind, runs.two / kind
    for step in (2, 4):
        same_rollouts(one, two, step)
    lines = [line for line in metrics(one) if "loss" in line]
    assert all(line["grad_norm"] > 0 and line["reward_std"] > 0 for line in lines)
    assert lines[-1]["kl"] > 0
    equal_metrics(one, two)
    assert (two / "train.rank1.log").exists()


@pytest.mark.slow
@every_way
def test_sharded_runs_leave_ordinary_checkpoints(
    runs_of: Runs, world: World, way: str, kind: str
) -> None:
    runs = runs_of(way, kind)
    for name in ("checkpoints/2", "checkpoints/4", "final"):
        close(runs.one / kind / name, runs.two / kind / name)
    trained = load_policy(runs.two / kind / "final", VQ).network.state_dict()
    start = load_policy(world.policy, VQ).network.state_dict()
    assert any((trained[name] - start[name]).abs().max() > 1e-4 for name in start)


@pytest.mark.slow
def test_with_lora_zero3_gathers_the_adapter_alone_for_a_rollout_phase(runs_of: Runs) -> None:
    gathered = json.loads((runs_of("zero3", "lora").two / "lora" / "gathered.json").read_text())
    assert gathered and all(gathered)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "kind"), [(way, kind) for way, kind in EVERY if "value" in RL[kind]["algorithm"]]
)
def test_the_value_model_of_a_sharded_run_is_that_of_one_process(
    runs_of: Runs, way: str, kind: str
) -> None:
    runs = runs_of(way, kind)
    for step in ("2", "4"):
        place = Path(kind, "checkpoints", step, "trainer_state.pt")
        states = [torch.load(each / place, weights_only=True) for each in (runs.one, runs.two)]
        (_, one), (_, two) = (state["trained"] for state in states)
        torch.testing.assert_close(two, one, atol=1e-6, rtol=0)
    assert any(bool(tensor.any()) for tensor in two.values())
    losses = [line["loss/value_avg"] for line in metrics(runs.two / kind) if "loss" in line]
    assert len(losses) == 4 and losses[-1] > 0


@pytest.mark.slow
@pytest.mark.parametrize(("way", "kind"), STOPPED.items())
def test_processes_leave_together_if_one_is_to_stop(runs_of: Runs, way: str, kind: str) -> None:
    runs = runs_of(way, kind)
    stopped, whole = runs.two / f"{kind}-stopped", runs.two / kind
    assert metrics(stopped) == metrics(whole) and same_weights(stopped / "final", whole / "final")


@pytest.mark.slow
@every_way
def test_a_sharded_run_resumes_exactly(runs_of: Runs, way: str, kind: str) -> None:
    runs = runs_of(way, kind)
    whole, resumed = runs.two / kind, runs.two / f"{kind}-resumed"
    assert metrics(resumed)[-1] == metrics(whole)[-1]
    assert same_weights(resumed / "final", whole / "final")


@pytest.mark.slow
@every_way
def test_a_run_continues_with_another_number_of_processes_sharded_or_not(
    runs_of: Runs, world: World, tmp_path: Path, way: str, kind: str
) -> None:
    runs = runs_of(way, kind)
    sharded = runs.two / kind / "checkpoints" / "2"
    reinforce(world, tmp_path / "run", kind, resume_from_checkpoint=str(sharded))
    for continued in (tmp_path / "run", runs.two / f"{kind}-continued"):
        equal_metrics(runs.one / kind, continued, after=2)
        same_rollouts(runs.one / kind, continued, 4)
        close(runs.one / kind / "final", continued / "final")


@pytest.mark.slow
@pytest.mark.parametrize("way", PAIRS)
def test_supervised_runs_have_the_losses_of_one_process_and_resume(runs_of: Runs, way: str) -> None:
    runs = runs_of(way, "sft")
    equal_metrics(runs.one / "sft", runs.two / "sft")
    for name in ("checkpoints/2", "checkpoints/4", "final"):
        close(runs.one / "sft" / name, runs.two / "sft" / name)
    load_policy(runs.two / "sft" / "final", VQ)
    assert metrics(runs.two / "sft-resumed")[-1] == metrics(runs.two / "sft")[-1]
    assert same_weights(runs.two / "sft-resumed" / "final", runs.two / "sft" / "final")
