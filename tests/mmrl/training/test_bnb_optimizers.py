"""AdamW of bitsandbytes: moments of 8 bits, exact resumption, and where it cannot work."""

from pathlib import Path

import pytest

from mmrl import rl
from mmrl.config import ConfigError
from mmrl.runtime.launch_checks import check_launch
from tests.mmrl.runs import World, metrics, rollouts, run_config, same_weights, trainer_of

pytest.importorskip("bitsandbytes")
EIGHT = {"optimizer": "adamw_8bit", "learning_rate": 1e-3, "algorithm": {"num_iterations": 1}}


def test_moments_of_8_bits_take_the_steps_of_adamw_up_to_their_rounding(
    world: World, tmp_path: Path
) -> None:
    weights = {}
    for name in ("adamw", "adamw_8bit"):
        config = run_config(world, tmp_path, **{**EIGHT, "optimizer": name})
        trainer = trainer_of(config)
        start = {n: p.detach().clone() for n, p in trainer.trained.named_parameters()}
        trainer.update(rollouts(config, trainer))
        weights[name] = {n: p - start[n] for n, p in trainer.trained.named_parameters()}
    for name, exact in weights["adamw"].items():
        difference = (weights["adamw_8bit"][name] - exact).norm()
        assert difference < 0.1 * exact.norm(), name


@pytest.mark.slow
def test_a_run_with_moments_of_8_bits_resumes_exactly(world: World, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    rl.train(run_config(world, whole, **EIGHT))
    rl.train(run_config(world, parts, **EIGHT, max_steps=2))
    rl.train(run_config(world, parts, **EIGHT, resume_from_checkpoint="auto"))
    assert metrics(parts) == metrics(whole)
    assert same_weights(parts / "final", whole / "final")


def test_a_missing_package_and_shards_are_refused(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mmrl.run_config.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="'adamw_8bit'; it must be adamw or sgd.*quantization"):
        run_config(world, tmp_path, **EIGHT)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    with pytest.raises(ConfigError, match="'adamw_8bit'; it must be adamw or sgd where .* sharded"):
        check_launch("adamw_8bit")
