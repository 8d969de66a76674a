"""One step of each transition kernel, by golden numbers, public codes, sampling and calculus.

`tests/fixtures/flow/steps.*` has the numbers of public codes on one [2, 4, 4, 4] sample; each case
names the function and its commit. Cases in which a public code is known to be wrong are not in it.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mmrl.algorithms.ratios import gaussian, gaussian_rate
from mmrl.config import ConfigError
from mmrl.generation.flow import make_sigmas, transition
from mmrl.generation.flow.transitions import KERNELS, Step, clean, dpm2_step, logprob_of, predict
from mmrl.types import Gaussian

FOLDER = Path(__file__).parents[3] / "fixtures" / "flow"
CASES: dict[str, Any] = json.loads((FOLDER / "steps.json").read_text())
X, V, Z = torch.tensor([[0.5, -1, 0.25, 2], [1, -0.5, 0.75, -1.25], [0.3, -0.7, 1.1, 0]]).split(1)
LEVELS = {"flow": 0.7, "dance": 0.3, "cps": 0.8, "ode": 0.0}
GOLDEN: dict[str, tuple[Any, ...]] = {  # deviation, mean, next, log-prob
    "flow": (
        0.442719,
        (0.31425, -0.81525, 0.126, 1.910625),
        (0.447066, -1.125153, 0.612991, 1.910625),
        -0.327868,
    ),
    "dance": (
        0.094868,
        (0.396062, -0.943812, 0.17275, 2.115156),
        (0.424523, -1.01022, 0.277105, 2.115156),
        1.212577,
    ),
    "cps": (
        0.665740,
        (0.061418, -0.417943, -0.018475, 1.278546),
        (0.26114, -0.883961, 0.713838, 1.278546),
        -0.198336,
    ),
    "ode": (0.0, (0.4, -0.95, 0.175, 2.125), (0.4, -0.95, 0.175, 2.125), 0.0),
}


@pytest.fixture(scope="module")
def public() -> dict[str, Tensor]:
    return load_file(FOLDER / "steps.safetensors")


def close(found: Tensor, wanted: Any, limit: float = 1e-6) -> None:
    torch.testing.assert_close(found, torch.as_tensor(wanted).to(found), atol=limit, rtol=limit)


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("kernel", GOLDEN)
def test_a_step_has_its_golden_numbers(kernel: str) -> None:
    noise = Z if KERNELS[kernel].density else None
    level = LEVELS[kernel]
    found = transition(kernel, X, V, 0.8, 0.7, noise=noise, noise_level=level, sigma_max=0.9)
    deviation, mean, following, logprob = GOLDEN[kernel]
    for each, wanted in zip(found, ([following], [mean], [deviation], [logprob]), strict=True):
        close(each, wanted)


def test_a_sigma_of_one_takes_the_second_sigma_of_the_schedule() -> None:
    sigma = make_sigmas("static_twice", 10)
    close(sigma[1], 0.960129)
    for top, deviation in ((sigma[1], 0.7), (0.99, 1.397735)):
        found = transition("flow", X, V, 1.0, sigma[1], noise=Z, noise_level=0.7, sigma_max=top)
        close(found[2], [deviation])
        if top == sigma[1]:
            close(found[1], [(0.337629, -0.735065, 0.158847, 1.559838)])
            close(found[3], [-0.786014])
    # UniPC of diffusers begins a little below 1
    _, nearly = predict("flow", Step(X, V, 1 - 1e-6, sigma[1], 0.7, sigma[1]))
    close(nearly, [0.7], 1e-4)
    steps = len(sigma) - 1
    rows = Step(X.expand(steps, -1), V.expand(steps, -1), sigma[:-1], sigma[1:], 0.7, sigma[1])
    wanted = (0.7, 0.74296, 0.53615, 0.4459, 0.39179, 0.3528, 0.31907, 0.28201, 0.22536, 0.00628)
    close(predict("flow", rows)[1], wanted, 1e-5)


def test_another_velocity_has_its_golden_log_prob_and_kl() -> None:
    x, v, moved = X.double(), V.double(), V.double() + torch.tensor([[0.02, -0.01, 0.03, 0.01]])
    for kernel, logprob in (("flow", -0.331117), ("cps", -0.201363)):
        level = LEVELS[kernel]
        following, mean, deviation, _ = transition(
            kernel, x, v, 0.8, 0.7, noise=Z, noise_level=level, sigma_max=0.9
        )
        new, _ = predict(kernel, Step(x, moved, 0.8, 0.7, level, 0.9))
        close(logprob_of(kernel, following, new, deviation), [logprob])
        if kernel == "flow":
            interval, size = torch.full_like(deviation, 0.1), torch.tensor([4])
            policy, other = (Gaussian(m, deviation, interval, size) for m in (new, mean))
            close(gaussian(policy, other) * 1e5, [1.482805])
            close(gaussian_rate(policy, other) * 1e6, [1.482805])
            idle = policy._replace(deviation=torch.zeros(1))
            assert gaussian(idle, other).tolist() == [0]


def test_dpm2_has_its_golden_chain() -> None:
    sigmas, sample, previous = (1, 0.9, 0.75, 0.5, 0.0), X, None
    for n, wanted in enumerate(
        ((0.465, -0.96, 0.2275, 1.89), (0.415125, -0.903, 0.195437, 1.73325))
        + ((0.341352, -0.818687, 0.148012, 1.501391), (0.206014, -0.664016, 0.061009, 1.076043))
    ):
        velocity = 0.5 * sample + 0.1
        finished = clean(sample, velocity, sigmas[n])
        sample, previous = dpm2_step(sample, velocity, sigmas[n], sigmas[n + 1], previous)
        close(sample, [wanted])
        assert previous[0].equal(finished)


def test_dpm2_walks_as_the_public_solver(public: dict[str, Tensor]) -> None:
    sample, previous, sigmas = public["in/chain/x"], None, public["in/sched_linear/sigmas"]
    for n, velocity in enumerate(public["in/chain/vs"]):
        step = (sample, velocity, sigmas[n], sigmas[n + 1])
        first = transition("dpm2", *step, noise=None, noise_level=0.7, sigma_max=0.9)[0]
        sample, previous = dpm2_step(*step, previous)
        close(sample, public["chain/nft/dpm2/chain"][n + 1], 2e-6)
        if n in (0, 1, len(sigmas) - 2):
            close(first, sample)


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_that_of_the_public_code(name: str, public: dict[str, Tensor]) -> None:
    case, dtype = CASES[name], getattr(torch, CASES[name]["dtype"])
    given = "in/f64" if dtype == torch.double else "in/f32"
    x, v, noise, other = (public[f"{given}/{part}"] for part in ("x", "v", "noise", "given"))
    x, v, other = x.to(dtype), v.to(dtype).requires_grad_(), other.to(dtype)
    sigmas, at = public[case["sigmas"]], case["index"]
    kernel, top = case["kernel"], case.get("sigma_max", sigmas[1])
    drawn = noise if KERNELS[kernel].density else None
    following, mean, deviation, logprob = transition(
        kernel,
        x,
        v,
        sigmas[at],
        sigmas[at + 1],
        noise=drawn,
        noise_level=case["level"],
        sigma_max=top,
    )
    assert following.dtype == dtype
    exact = 1e-12 if dtype == torch.double else 6e-6
    found = {"next": following, "mean": mean, "log_prob": logprob}
    if f"{name}/given_log_prob" in public:
        found["given_log_prob"] = logprob_of(kernel, other, mean, deviation)
        found["grad_v"] = torch.autograd.grad(found["given_log_prob"].sum(), v)[0]
    for part, value in found.items():
        if f"{name}/{part}" in public:
            limit = 1e-2 if part == "grad_v" and dtype.itemsize < 4 else exact
            close(value.double(), public[f"{name}/{part}"].double(), limit)


@pytest.mark.parametrize("kernel", ["flow", "dance", "cps"])
def test_the_gradient_of_a_log_prob_is_the_closed_form(kernel: str) -> None:
    x, v, z = (draw(2, 3, 5, seed=n, dtype=torch.double) for n in range(3))
    sigma, after, level = 0.8, 0.7, 0.7
    v.requires_grad_()
    following, mean, deviation, logprob = transition(
        kernel, x, v, sigma, after, noise=z, noise_level=level, sigma_max=0.9
    )
    (found,) = torch.autograd.grad(logprob.sum(), v)
    strength = level * math.sqrt(sigma / (1 - sigma)) if kernel == "flow" else level
    slope = (1 + strength**2 * (1 - sigma) / (2 * sigma)) * (after - sigma)
    precision = 1 / float(deviation[0]) ** 2
    if kernel == "cps":
        kept = after * math.cos(level * math.pi / 2)
        slope, precision = -(1 - after) * sigma + kept * (1 - sigma), 2.0
    close(found, (following - mean) * slope * precision / 15, 1e-12)


@pytest.mark.parametrize("kernel", ["flow", "dance", "cps"])
def test_rows_at_different_steps_are_the_same_rows_alone(kernel: str) -> None:
    x, v, z = (draw(3, 2, 4, seed=n).bfloat16() for n in range(3))
    v = v.float().requires_grad_()
    sigma, after = torch.tensor([1.0, 0.8, 0.5]), torch.tensor([0.9, 0.7, 0.0])
    level = torch.tensor([0.7, 0.0, 0.7])
    together = transition(
        kernel, x, v, sigma, after, noise=z, noise_level=level, sigma_max=torch.tensor(0.9)
    )
    for n in range(3):
        at = slice(n, n + 1)
        alone = transition(
            kernel,
            x[at],
            v[at],
            sigma[n].item(),
            after[n].item(),
            noise=z[at],
            noise_level=level[n].item(),
            sigma_max=0.9,
        )
        for one, all_ in zip(alone, together, strict=True):
            assert one.equal(all_[at])
    # a deterministic row is the step of the ODE and has no log-prob, and no NaN reaches its rows
    euler = transition("ode", x, v, sigma, after, noise=None, noise_level=0, sigma_max=0.9)
    plain = transition(kernel, x, v, sigma, after, noise=None, noise_level=0.7, sigma_max=0.9)
    close(together[1][1], euler[1][1])
    close(plain[1], euler[1])
    assert together[3][1] == 0 and together[2][1] == 0 and plain[3].tolist() == [0, 0, 0]
    (gradient,) = torch.autograd.grad(together[3].sum(), v)
    assert gradient.isfinite().all() and gradient[1].eq(0).all() and gradient[0].ne(0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kernel", ["flow", "dance", "cps"])
def test_the_log_prob_of_a_rollout_is_that_of_its_replay(kernel: str, dtype: torch.dtype) -> None:
    x, v, z = draw(4, 16, 8).to(dtype), draw(4, 16, 8, seed=1).to(dtype), draw(4, 16, 8, seed=2)
    stored, mean, deviation, logprob = transition(
        kernel, x, v, 0.8, 0.7, noise=z, noise_level=0.3, sigma_max=0.9
    )
    again, spread = predict(kernel, Step(x, v, 0.8, 0.7, 0.3, 0.9))
    assert stored.dtype == dtype and mean.dtype == torch.float32
    assert logprob_of(kernel, stored, again, spread).equal(logprob)
    unrounded = mean + deviation[:, None, None] * z
    assert not logprob_of(kernel, unrounded, mean, deviation).equal(logprob)


MARGINALS = {  # the deviation that is left of 0.5 after 10, 50 and 400 steps
    ("ode", "static_twice"): (0.35916, 0.47155, 0.49635),
    ("flow", "static_twice"): (0.42102, 0.48375, 0.49862),
    ("dance", "static_twice"): (0.37693, 0.47475, 0.49674),
    ("cps", "static_twice"): (0.30767, 0.37567, 0.39771),
    ("ode", "linear"): (0.43078, 0.4854, 0.49815),
    ("flow", "linear"): (0.47954, 0.49846, 0.50111),
    ("cps", "linear"): (0.35179, 0.38889, 0.40102),
}


def walk(kernel: str, x: Tensor, noise: Tensor, sigmas: list[float], n: int) -> tuple[Tensor, ...]:
    """Step n with the exact velocity of N(1, 1/4)."""
    sigma, given = sigmas[n], None if kernel == "ode" else noise
    k = (sigma - 0.25 * (1 - sigma)) / (0.25 * (1 - sigma) ** 2 + sigma**2)
    velocity, levels = k * (x - (1 - sigma)) - 1, {"noise_level": LEVELS[kernel]}
    levels["sigma_max"] = sigmas[1]
    return transition(kernel, x, velocity, sigma, sigmas[n + 1], noise=given, **levels)


@pytest.mark.parametrize(("kernel", "rule"), MARGINALS)
def test_the_marginals_of_a_walk_are_those_of_the_recursion(kernel: str, rule: str) -> None:
    for steps, wanted in zip((10, 50, 400), MARGINALS[kernel, rule], strict=True):
        sigmas, mean, variance = make_sigmas(rule, steps).tolist(), 0.0, 1.0
        ends = torch.tensor([[0.0], [1.0]], dtype=torch.double)
        for n in range(steps):  # a mean is affine in x
            _, (low, high), (deviation, _), _ = walk(kernel, ends, ends, sigmas, n)
            slope = float(high - low)
            mean, variance = float(low) + slope * mean, slope**2 * variance + float(deviation) ** 2
        assert mean == pytest.approx(1, abs=1e-9)
        assert variance**0.5 == pytest.approx(wanted, abs=6e-6)
        x = draw(20_000, 1)
        for n in range(steps):
            x = walk(kernel, x, draw(20_000, 1, seed=n + 1), sigmas, n)[0]
        assert abs(x.mean().item() - 1) < 0.012 and abs(x.std().item() - wanted) < 0.009
        if kernel in ("flow", "dance"):  # an SDE with the marginals of the ODE
            assert abs(wanted - 0.5) < 1.4 / steps


def test_an_unknown_kernel_and_noise_without_a_use_are_refused() -> None:
    with pytest.raises(ConfigError, match="kernel is 'flo'; allowed: cps, dance, .*'flow'"):
        transition("flo", X, V, 0.8, 0.7, noise=Z, noise_level=0.7, sigma_max=0.9)
    for kernel in ("ode", "dpm2"):
        names = "cps or dance or flow or flow_wan"
        said = f"kernel is '{kernel}'; it must be {names} where noise is given"
        with pytest.raises(ConfigError, match=said):
            transition(kernel, X, V, 0.8, 0.7, noise=Z, noise_level=0.7, sigma_max=0.9)
