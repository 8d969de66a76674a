"""Every configuration in the repository loads, and the 8B recipes hold what they are known for."""

from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file

from mmrl.algorithms import load_algorithm
from mmrl.config import load_config
from mmrl.eval import EvalConfig as TextEvalConfig
from mmrl.eval_v import EvalConfig
from mmrl.plan import describe
from mmrl.rl_config import RLConfig
from mmrl.sft import SFTConfig

ROOT = Path(__file__).resolve().parents[1]
RECIPES = ("mmada_t2i_clip", "mmada_t2i_hps", "mmada_t2i_geneval")


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def configurations(folder: str) -> list[str]:
    return sorted(
        str(path.relative_to(ROOT)) for path in (ROOT / "configs" / folder).glob("*.yaml")
    )


@pytest.mark.parametrize("path", configurations("rl"))
def test_every_rl_configuration_passes_its_dry_run(path: str) -> None:
    assert "memory" in describe(load_config(RLConfig, [f"config={path}"]))


@pytest.mark.parametrize("path", configurations("sft"))
def test_every_supervised_configuration_loads(path: str) -> None:
    assert load_config(SFTConfig, [f"config={path}"]).objective["name"]


@pytest.mark.parametrize("path", configurations("eval"))
def test_every_benchmark_configuration_loads(path: str) -> None:
    kind = TextEvalConfig if Path(path).stem.startswith("llada_") else EvalConfig
    assert load_config(kind, [f"config={path}"]).prompts


@pytest.mark.parametrize("path", [p for p in configurations("eval") if "llada_" in p])
def test_the_text_benchmarks_are_the_d1_protocol(path: str) -> None:
    config = load_config(TextEvalConfig, [f"config={path}"])
    rows = config.rows().values()
    assert [(row.length, row.sampler.steps) for row in rows] == [(128, 64), (256, 128), (512, 256)]
    for sampler, _ in rows:
        assert (sampler.name, sampler.target, sampler.eos) == ("static", "confidence", "free")
        assert (sampler.block_size, sampler.temperature, sampler.cfg_scale) == (32, 0, 0)
    assert config.model.path == "GSAI-ML/LLaDA-8B-Instruct" and config.num_samples == 1


@pytest.mark.parametrize("path", configurations("algorithm"))
def test_every_method_loads_under_the_name_of_its_file(path: str) -> None:
    name = Path(path).stem
    assert load_algorithm({"name": name}).name == name


@pytest.mark.parametrize("path", configurations("accelerate"))
def test_every_launch_configuration_is_one_that_accelerate_reads(path: str) -> None:
    loaded = load_config_from_file(path)
    kind, sharding = loaded.distributed_type.value, loaded.fsdp_config or {}
    assert loaded.num_processes >= 1 and kind in {"MULTI_GPU", "MULTI_CPU", "FSDP"}
    assert kind != "FSDP" or sharding["fsdp_version"] == 2


@pytest.mark.parametrize("path", [p for f in ("rl", "sft", "eval") for p in configurations(f)])
def test_a_configuration_is_short(path: str) -> None:
    assert len(Path(path).read_text(encoding="utf-8").splitlines()) <= 40


@pytest.mark.parametrize("name", RECIPES)
def test_the_8b_recipes_are_maskgrpo_on_mmada(name: str) -> None:
    config = load_config(RLConfig, [f"config=configs/rl/{name}.yaml"])
    task = config.tasks["images"]
    algorithm = load_algorithm(task.algorithm)
    assert config.model.path == "Gen-Verse/MMaDA-8B-MixCoT" and config.model.image_size == 512
    assert config.model.vq == "showlab/magvitv2" and config.model.mask_policy == "ignore"
    assert config.model.lora is not None and len(config.model.lora.target_modules) == 7
    assert (config.model.dtype, config.model.max_prompt_length) == ("bfloat16", 256)
    sampler = task.sampler
    assert (sampler.name, sampler.steps, sampler.cfg_scale) == ("emerge", 12, 3.5)
    assert (task.num_generations, algorithm.num_iterations) == (9, 8)
    assert (algorithm.min_mask_rate, algorithm.beta, algorithm.cfg_scale) == (0.8, 0.01, 0.0)
    for processes in (1, 2, 4, 8):
        config.check_geometry(processes)


@pytest.mark.parametrize("name", RECIPES)
def test_the_8b_recipes_state_how_scoring_is_guided_and_no_defaults_of_the_run(name: str) -> None:
    stated = yaml.safe_load(Path(f"configs/rl/{name}.yaml").read_text(encoding="utf-8"))
    assert stated["tasks"]["images"]["algorithm"]["cfg_scale"] == 0.0
    defaults = RLConfig.__dataclass_fields__
    repeated = [key for key, value in stated.items() if defaults[key].default == value]
    assert not repeated, repeated
