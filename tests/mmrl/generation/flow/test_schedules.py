"""Schedules of sigmas, by golden numbers, diffusers' pipelines and its installed scheduler.

`tests/fixtures/flow/schedules.json` has what the pipelines of diffusers 0.42.0 set.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mmrl.config import ConfigError
from mmrl.generation.flow import make_sigmas
from mmrl.generation.flow.schedules import (
    RULES,
    SOLVERS,
    SigmaRule,
    compress_tail,
    mu_as_fitted,
    mu_on_line,
    rule_of,
)

FILE = Path(__file__).parents[3] / "fixtures" / "flow" / "schedules.json"
PUBLIC: dict[str, Any] = json.loads(FILE.read_text())
QWEN = SigmaRule(dynamic="exponential", tokens=(256, 8192), mus=(0.5, 0.9), last=0.02)


def assert_sigmas(found: torch.Tensor, *wanted: float, first: int = 0) -> None:
    part = found[first : first + len(wanted)]
    torch.testing.assert_close(part, torch.tensor(wanted), atol=1e-6, rtol=0)


def test_schedules_have_their_golden_numbers() -> None:
    sd3, once = make_sigmas("static_twice", 10), make_sigmas("static", 10)
    assert_sigmas(sd3, 1, 0.960129, 0.913349, 0.857692, 0.790368, 0.707278, 0.602151, 0.464876)
    assert_sigmas(sd3, 0.278049, 0.008929, 0, first=8)
    assert_sigmas(make_sigmas("static_twice", 40), 1, 0.991331, 0.982356, 0.973058)
    last = (0.206198, 0.146509, 0.081046, 0.008929, 0)
    assert_sigmas(make_sigmas("static_twice", 40), *last, first=36)
    assert_sigmas(once, 1, 0.964286, 0.923077, 0.875, 0.818182, 0.75, 0.666667, 0.5625, 0.428571)
    assert_sigmas(once, 0.25, 0, first=9)
    five = make_sigmas(SigmaRule(shift=5), 16)
    assert_sigmas(five, 1, 0.986842, 0.972222)
    assert_sigmas(five, 0.416667, 0.25, 0, first=14)
    flux = (0.903736, 0.789705, 0.652489, 0.484218, 0.273003)
    assert_sigmas(make_sigmas("dynamic", 6, 1024), 1, *flux, 0)
    flux = (0.940444, 0.86332, 0.759511, 0.612267, 0.387119)
    assert_sigmas(make_sigmas("dynamic", 6, 4096), 1, *flux, 0)
    qwen = (0.92897, 0.851485, 0.766624, 0.673281, 0.570117, 0.455497, 0.3274, 0.183301, 0.02)
    assert_sigmas(make_sigmas(QWEN, 10, 1024), 1, *qwen, 0)
    flux2 = (0.985007, 0.966885, 0.944544, 0.916313, 0.879511, 0.829537, 0.757774, 0.646003)
    assert_sigmas(make_sigmas("fitted", 10, 1024), 1, *flux2, 0.447837, 0)
    even = torch.linspace(1, 0, 11, dtype=torch.double).float()
    assert_sigmas(make_sigmas("linear", 10), *even.tolist())


def test_a_shorter_tail_is_the_grid_of_the_public_code_but_for_its_last_point() -> None:
    rule = SigmaRule(shift=3)
    whole = make_sigmas(rule, 25)
    found = compress_tail(rule, whole, 4, 0.4)
    even = torch.linspace(21 / 25, 0, int(22 * 0.4), dtype=torch.double)
    assert_sigmas(found, *whole[:4].tolist(), *(3 * even / (1 + 2 * even)).tolist(), 0, 0)
    assert len(found) == 26 and found.count_nonzero() == 4 + 7
    assert compress_tail(rule, whole, 24, 0.4).tolist() == whole.tolist()


def test_mu_has_its_golden_numbers() -> None:
    assert mu_on_line(QWEN, 10, 1024) == pytest.approx(0.538710, abs=1e-6)
    assert mu_on_line(QWEN, 10, 4096) == pytest.approx(0.693548, abs=1e-6)
    for tokens, steps, mu in (
        (1024, 50, 1.701956),
        (4096, 50, 2.023351),
        (1024, 4, 2.030690),
        (4096, 28, 2.151443),
        (6000, 50, 1.472287),
    ):
        assert mu_as_fitted(RULES["fitted"], steps, tokens) == pytest.approx(mu, abs=1e-6)


@pytest.mark.parametrize("name", PUBLIC)
def test_the_configuration_of_a_scheduler_gives_the_sigmas_of_its_pipeline(name: str) -> None:
    case = PUBLIC[name]
    rule = rule_of(case["scheduler"], even=True if "z-image" in name else None)
    rule = replace(rule, mu="fitted") if "flux.2" in name else rule
    assert_sigmas(make_sigmas(rule, case["steps"], case["tokens"]), *case["sigmas"])


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"shift": 3.0},
        {"shift": 6.0, "shift_terminal": 0.1, "num_train_timesteps": 500},
        {"use_dynamic_shifting": True, "shift": 3.0},
        {"use_dynamic_shifting": True, "time_shift_type": "linear", "shift_terminal": 0.02},
        {"use_dynamic_shifting": True, "base_shift": 0.3, "max_shift": 0.8, "max_image_seq_len": 9},
    ],
)
def test_sigmas_are_those_of_the_installed_scheduler(options: dict[str, Any], even: bool) -> None:
    from diffusers.schedulers.scheduling_flow_match_euler_discrete import (
        FlowMatchEulerDiscreteScheduler,
    )

    scheduler: Any = FlowMatchEulerDiscreteScheduler(**options)
    rule = rule_of(scheduler.config, even=even)
    mu: dict[str, Any] = {"mu": mu_on_line(rule, 7, 1600)} if rule.dynamic else {}
    if even:
        scheduler.set_timesteps(sigmas=[1 - n / 7 for n in range(7)], **mu)
    else:
        scheduler.set_timesteps(7, **mu)
    assert_sigmas(make_sigmas(rule, 7, 1600), *scheduler.sigmas.tolist())


@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_of_a_flow_begins_beside_the_sigmas_of_its_shift(name: str) -> None:
    import diffusers

    kind: Any = getattr(diffusers, name)
    own = {"use_flow_sigmas": True, "flow_shift": 3.0, "prediction_type": "flow_prediction"}
    scheduler = kind(**own)
    scheduler.set_timesteps(10)
    found = make_sigmas(rule_of({**scheduler.config, "_class_name": name}), 10)
    assert_sigmas(found, *make_sigmas("static", 10).tolist())
    assert (scheduler.sigmas - found).abs().max() < 2e-3


@pytest.mark.parametrize("rule", [*RULES.values(), QWEN])
def test_sigmas_fall_from_one_to_zero(rule: SigmaRule) -> None:
    for steps in (1, 2, 50):
        sigmas = make_sigmas(rule, steps, 1024)
        assert sigmas.shape == (steps + 1,) and sigmas.dtype == torch.float32
        assert sigmas[0] == 1 and sigmas[-1] == 0 and sigmas.diff().lt(0).all()


@pytest.mark.parametrize(
    ("scheduler", "said"),
    [
        ({"_class_name": "DDIMScheduler", "prediction_type": "epsilon"}, r"DDIM.* \(epsilon\)"),
        ({"_class_name": "PNDMScheduler", "prediction_type": "v_prediction"}, r"PNDM.*v_predict"),
        ({"_class_name": "EulerDiscreteScheduler"}, "'EulerDiscreteScheduler'"),
        ({"_class_name": "DPMSolverMultistepScheduler", "prediction_type": "epsilon"}, "DPMSolver"),
        ({"_class_name": SOLVERS[0], "prediction_type": "flow_prediction"}, "DPMSolver"),
        ({"prediction_type": "epsilon"}, "epsilon"),
    ],
)
def test_a_scheduler_of_another_kind_is_refused_by_name(scheduler: dict, said: str) -> None:
    said = f"{said}.*; it must be FlowMatchEulerDiscreteScheduler, .*velocity of a flow"
    with pytest.raises(ConfigError, match=said):
        rule_of(scheduler)


def test_impossible_schedules_are_refused() -> None:
    with pytest.raises(ConfigError, match="use_karras_sigmas of the scheduler is True"):
        rule_of({"use_karras_sigmas": True})
    with pytest.raises(ConfigError, match="steps is 0; it must be at least 1"):
        make_sigmas("linear", 0)
    with pytest.raises(ConfigError, match="tokens is None; it must be the number of image tokens"):
        make_sigmas("dynamic", 10)
    with pytest.raises(ConfigError, match="rule is 'statc'; allowed: .*Did you mean 'static'"):
        make_sigmas("statc", 10)
