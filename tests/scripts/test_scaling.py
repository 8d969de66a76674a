"""The tables of the page on many GPUs are those of the script, and its passes are the sampler's."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mmrl.models.network.flops import PassSize, measure_pass
from mmrl.randomness import generator
from mmrl.samplers import SamplerConfig, sample
from tests.mmrl.text_canvases import LENGTH, POLICY, canvas_of

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
PAGE = BENCH.parents[1] / "docs" / "results" / "scaling.md"


@pytest.fixture(scope="module")
def scaling() -> Iterator[ModuleType]:
    """The script as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        yield importlib.import_module("scaling")


def test_operations_traffic_and_time_of_the_page_are_those_of_the_script(
    scaling: ModuleType,
) -> None:
    page = PAGE.read_text()
    tables = dict(scaling.tables(scaling.Setting(), memory=False))
    assert len(tables) == 9
    assert not [title for title, table in tables.items() if table not in page]


@pytest.mark.parametrize(
    ("cache", "window"), [("none", None), ("prefix", 2), ("dual", None), ("dual", 3)]
)
def test_passes_of_a_text_are_those_of_the_sampler(
    cache: Any, window: int | None, scaling: ModuleType
) -> None:
    found: list[PassSize] = []

    def note(_: Any, __: Any, arguments: dict[str, Any]) -> None:
        found.append(measure_pass(POLICY.network.core, **arguments))

    sampler = SamplerConfig(
        name="static", steps=6, block_size=4, cache=cache, window=window, temperature=0
    )
    hook = POLICY.network.register_forward_pre_hook(note, with_kwargs=True)
    try:
        sample(POLICY, canvas_of([5]), sampler, generator("arithmetic"))
    finally:
        hook.remove()
    runs: Any = importlib.import_module("public_runs")
    assert list(runs.text_passes(sampler, 5, LENGTH, 40)) == found


@pytest.mark.slow
def test_the_memory_of_the_page_is_about_what_the_dry_run_estimates(
    scaling: ModuleType,
) -> None:
    setting = scaling.Setting()
    sizes = {"num_prompts": 64, "num_generations": 8, "rollout_batch_size": setting.rollout_batch}
    case = scaling.build_cases(setting.rank, setting.micro_batch, **sizes)[1]
    table = PAGE.read_text().split("## Memory")[1].split("With all weights trained:")[1]
    for way, cells in re.findall(r"^\| (DDP|FSDP2|ZeRO-3) \|(.+) \|$", table.split("##")[0], re.M):
        gib = float(re.findall(r"(\d+) \(", cells)[-1])
        found = scaling.phases(case, way, 64)
        assert max(device for name, (device, _) in found.items() if name != "loading") == (
            pytest.approx(gib, rel=0.15, abs=1)
        )
