"""Configuration: three layers in order, and errors that say what to change."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from omegaconf import MISSING

from mmrl.config import (
    ConfigError,
    Settings,
    above,
    at_least,
    build_options,
    filled,
    import_extra,
    load_config,
    merge,
    one_of,
    to_yaml,
)
from mmrl.rl_config import RLConfig
from mmrl.samplers import SamplerConfig


@dataclass(kw_only=True)
class Task:
    prompts: str = MISSING
    weight: float = 1.0
    sampler: SamplerConfig = field(default_factory=SamplerConfig)


@dataclass(kw_only=True)
class Run:
    steps: int = 10
    learning_rate: float = 1e-3
    kind: Literal["small", "large"] = "small"
    names: list[str] = field(default_factory=lambda: ["a"])
    note: str | None = None
    tasks: dict[str, Task] = field(default_factory=dict)


class Exact:
    @dataclass(kw_only=True)
    class Config:
        margin: float = 0.5
        file: str = ""


@pytest.fixture
def yaml(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text("steps: 5\nlearning_rate: 2e-3\ntasks: {shapes: {prompts: train.jsonl}}\n")
    return path


def test_later_layers_win_and_the_rest_stays_as_it_was(yaml: Path) -> None:
    run = load_config(Run, [f"config={yaml}", "steps=7", "tasks.shapes.sampler.steps=3"])
    assert (run.steps, run.learning_rate, run.kind) == (7, 2e-3, "small")
    assert isinstance(run.tasks["shapes"], Task)
    assert run.tasks["shapes"].sampler.steps == 3 and run.tasks["shapes"].weight == 1.0


def test_what_stands_behind_a_tilde_is_left_out_of_the_file(yaml: Path) -> None:
    run = load_config(Run, [f"config={yaml}", "~tasks.shapes", "~steps"])
    assert run.tasks == {} and run.steps == Run().steps
    for words in ([f"config={yaml}", "~tasks.nothing"], [f"config={yaml}", "~name.x"], ["~steps"]):
        with pytest.raises(ConfigError, match=f"{words[-1]}: the YAML has no"):
            load_config(Run, words)


def test_a_resolved_configuration_reads_back_as_itself(yaml: Path, tmp_path: Path) -> None:
    run = load_config(Run, [f"config={yaml}", "note=two words"])
    (tmp_path / "again.yaml").write_text(to_yaml(run))
    assert load_config(Run, [f"config={tmp_path / 'again.yaml'}"]) == run


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["stpes=3"], ["stpes is not a setting", "Did you mean 'steps'", "learning_rate"]),
        (["tasks.shapes.sampler.stpes=3"], ["tasks.shapes.sampler.stpes", "'steps'", "cfg_scale"]),
        (["steps=1.5"], ["steps", "1.5"]),
        (["kind=smal"], ["kind is 'smal'; allowed: large, small. Did you mean 'small'?"]),
        (["steps"], ["'steps'", "key=value"]),
        (["tasks.text.weight=2"], ["tasks.text.prompts has no value"]),
        (["tasks.shapes.sampler.steps=0"], ["sampler.steps is 0", "at least 1"]),
        (["names={x: y}"], ["names is {'x': 'y'}", "a list, [a, b]"]),
        (["tasks=[shapes]"], ["tasks is ['shapes']", "a section, {key: value}"]),
    ],
)
def test_what_cannot_be_run_is_told_with_key_value_and_choices(
    yaml: Path, words: list[str], parts: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(Run, [f"config={yaml}", *words])
    for part in parts:
        assert part in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("max_prompt_len=3", "model.max_prompt_length"),
        ("model.num_generation=3", "tasks.<name>.num_generations"),
        ("bet=1", "tasks.<name>.algorithm.beta"),
        ("tasks.shapes.lerning_rate=1", "learning_rate"),
        ("~tasks.shape", "shapes"),
    ],
)
def test_a_key_that_another_section_has_is_found_there(word: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"Did you mean '{meant}'"):
        load_config(RLConfig, ["config=configs/rl/quickstart.yaml", word])


def test_paths_below_a_home_folder_are_written_out_wherever_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    text = "output_dir: ~/runs/a\ntasks: {shapes: {rewards: [{name: '~/r.py:f', file: ~/w}]}}"
    (tmp_path / "run.yaml").write_text(f"config: configs/rl/quickstart.yaml\n{text}\n")
    (tmp_path / "r.py").write_text("def f(samples, file): return []")
    (tmp_path / "top.yaml").write_text("config: ~/run.yaml\n")
    words = ["model.path=~/model", "tasks.shapes.prompts=~/p.jsonl", "hub_model_id=~nobody"]
    run = load_config(RLConfig, ["config=~/top.yaml", *words])
    task, home = run.tasks["shapes"], str(tmp_path)
    assert (run.output_dir, run.model.path) == (f"{home}/runs/a", f"{home}/model")
    assert task.rewards == [{"name": f"{home}/r.py:f", "file": f"{home}/w"}]
    assert task.prompts == f"{home}/p.jsonl" and run.hub_model_id == "~nobody"
    assert build_options({"e": Exact}, {"name": "e", "file": "~/x"}, "e").file == f"{home}/x"


def test_options_of_a_component_are_checked_against_its_own_settings() -> None:
    registry = {"exact": Exact}
    options = build_options(registry, {"name": "exact", "margin": 0.25}, "rewards.match")
    assert options == Exact.Config(margin=0.25)
    with pytest.raises(ConfigError, match=r"rewards\.match\.margn is not a setting.*'margin'"):
        build_options(registry, {"name": "exact", "margn": 1}, "rewards.match")
    with pytest.raises(ConfigError, match=r"rewards\.match\.name is 'exakt'.*'exact'"):
        build_options(registry, {"name": "exakt"}, "rewards.match")
    with pytest.raises(ConfigError, match=r"rewards\.match\.name is None"):
        build_options(registry, {}, "rewards.match")


def test_a_package_that_is_not_installed_is_named_with_the_extra_that_brings_it() -> None:
    assert import_extra("json.decoder", "clip").JSONDecoder
    with pytest.raises(ConfigError, match=r"no_such_package .* extra clip: .*mmrl\[clip\]"):
        import_extra("no_such_package.part", "clip")


@dataclass(kw_only=True)
class Limited(Settings):
    """Settings with what types can declare."""

    where: ClassVar[str] = "limits"

    number: Annotated[int | None, at_least(1)] = None
    batch: Annotated[int | str, at_least(1, or_word="auto")] = 1
    share: Annotated[float, at_least(0, below=1)] = 0.0
    rate: Annotated[float, above(0, up_to=5)] = 1.0
    name: Annotated[str, filled("a directory")] = "x"
    rule: Annotated[str, one_of({"emerge": 0, "static": 1})] = "emerge"
    steps: list[Annotated[int, at_least(1)]] = field(default_factory=list)


@dataclass(kw_only=True)
class Narrow(Limited):
    """A class that gives a setting another default."""

    share: float = 0.5


@pytest.mark.parametrize("cls", [Limited, Narrow])
@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("number", 0, "limits.number is 0; it must be null or at least 1."),
        ("batch", "some", "limits.batch is 'some'; it must be auto or at least 1."),
        ("share", float("nan"), "limits.share is nan; it must be a finite number."),
        ("rate", 0.0, "limits.rate is 0.0; it must be above 0, up to 5."),
        ("name", "", "limits.name is ''; it must be a directory."),
        (
            "rule",
            "statik",
            "limits.rule is 'statik'; allowed: emerge, static. Did you mean 'static'?",
        ),
        ("steps", [1, 0], "limits.steps[1] is 0; it must be at least 1."),
    ],
)
def test_what_a_type_does_not_allow_is_refused_from_python_and_from_a_file(
    cls: type, key: str, value: Any, said: str
) -> None:
    assert cls() and cls(batch="auto", number=None)
    for build in (lambda: cls(**{key: value}), lambda: merge(cls, {key: value}, where="limits")):
        with pytest.raises(ConfigError) as error:
            build()
        assert str(error.value) == said
