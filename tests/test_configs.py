"""Every configuration in the repository loads, and the 8B recipes hold what they are known for."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from PIL import Image

from mmrl.algorithms import load_algorithm
from mmrl.algorithms.forwards import passes_per_rollout
from mmrl.config import load_config
from mmrl.config.checks import is_hub_id
from mmrl.config.yaml_file import find_chain, first_line, read_yaml
from mmrl.data.prompts import load_prompts
from mmrl.evaluation.eval_config import TEXT_TASKS, VISION_TASKS, EvalConfig, load_settings
from mmrl.planning.plan import describe
from mmrl.planning.plan_page import LINES, WIDTH
from mmrl.planning.run_checks import check_geometry
from mmrl.pretrained.known import own_vq
from mmrl.rewards.judging.template import load_template
from mmrl.rl_config import RLConfig
from scripts.pipeline_skeletons import write_wan
from tests.by_path import load as load_script
from tests.mmrl.algorithms.test_presets import PRESETS

ROOT = Path(__file__).resolve().parents[1]
TEXT = ("gsm8k", "math", "countdown", "sudoku", "code")
LOCAL, SERVED = (0.6, 3.0, 6, 0.2), (0.8, 3.5, 8, 0.001)
"""Lowest mask rate, guidance, inner iterations and clipping range of MaskGRPO's two image scripts,
with rewards in the process and from servers."""
RECIPES = {
    "clip": LOCAL,
    "hps": LOCAL,
    **dict.fromkeys(("hpsv3", "unified_reward", "geneval"), SERVED),
    **dict.fromkeys(("hpsv3_client", "unified_reward_client", "geneval_client"), SERVED),
    "servers": SERVED,
}
sweep = load_script(ROOT / "scripts", "sweep")
BASES = ("clip", "hps", "hpsv3", "unified_reward", "geneval")
QUICK = ("llada_gsm8k", "lladav_process", "mmada_v_process", "mmada_t2i_geneval", "llada_process")
QUICK += ("sana_flow_grpo_pickscore", "sd3_guard_ocr")
VISION = {
    "mmada_v": ("Gen-Verse/MMaDA-8B-MixCoT", "MMaDA-8B", 16, (128, 64, 0.95, "free")),
    "lladav": ("GSAI-ML/LLaDA-V", "LLaDA-V-8B", 8, (256, 32, 0.9, "leave")),
}
"""Model, its sizes, size of a group; positions and steps, block, threshold and end of dLLM-RL."""
VISION_METHODS = {"random_masking": ("uniform", 2), "coupled": ("complementary", 4)}
VISION_METHODS |= {"trace_rl": ("trace", None), "trace_rl_value": ("trace", None)}
"""Masks and passes of the vision runs."""


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every setting of samplers and methods is one that what they choose reads."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("mmrl.config.chosen.warn_once", lambda message: pytest.fail(message))


def configurations(folder: str) -> list[str]:
    return sorted(
        str(path.relative_to(ROOT)) for path in (ROOT / "configs" / folder).glob("*.yaml")
    )


def mark_slow(path: str) -> Any:
    """Mark the recipes for 8B models but for the configurations that have all parts."""
    quick = not is_public(path) or Path(path).stem in QUICK
    return path if quick else pytest.param(path, marks=pytest.mark.slow)


def is_public(path: str) -> bool:
    """Whether a configuration trains a public checkpoint."""
    families = "llada|lladav|mmada|dream|diffucoder|sdar|trado|lumina|amused|qwen3|qwen_vl"
    families += "|sd3|flux|flux2_klein|qwen_image|z_image|sana|pe|wan"
    return re.match(rf"({families})_", Path(path).name) is not None


@pytest.mark.parametrize("path", list(map(mark_slow, configurations("rl"))))
def test_every_rl_configuration_has_a_plan_on_one_screen(path: str, tmp_path: Path) -> None:
    if Path(path).stem.startswith("amused_"):
        pytest.importorskip("diffusers")
    words = [f"config={path}", f"output_dir={tmp_path / 'run'}"]
    if "shapes_video" in path:  # its start is not shipped
        write_wan(tmp_path / "wan", width=128, layers=1)
        words.append(f"model.path={tmp_path / 'wan'}")
    if "shapes_rewriter" in path:  # nor are its start and its prompts
        words.append("models.rewriter.path=datasets/text/checkpoints/qwen3")
        words.append("tasks.rewrite.prompts=datasets/shapes/train.jsonl")
        words.append("tasks.rewrite.eval_prompts=datasets/shapes/test.jsonl")
    said = str(describe(load_config(RLConfig, words)))
    assert "memory" in said and "warning" not in said
    lines = said.splitlines()
    # a path is never broken
    assert len(lines) <= LINES and all(len(line) <= WIDTH + 20 for line in lines), said
    assert "settings that differ from their defaults" in said


@pytest.mark.parametrize("path", configurations("eval"))
def test_every_benchmark_configuration_loads(path: str) -> None:
    """As the command that it belongs to reads it."""
    kind = re.match("[a-z0-9]+_(?:t2i|geneval|dpg|questions|edit)|[a-z]+v_", Path(path).stem)
    config = load_settings([f"config={path}"], VISION_TASKS if kind else TEXT_TASKS)
    assert config.prompts and config.model.path


D1_SETS = ("gsm8k", "math500", "countdown", "sudoku", "mbpp")
DLLM_SETS = ("humaneval", "livecodebench", "aime24")
LLADA, DREAM = "GSAI-ML/LLaDA-8B-Instruct", "Dream-org/Dream-v0-Instruct-7B"
D1 = {"target": "confidence", "eos": "free", "block_size": 32, "temperature": 0, "cfg_scale": 0}
DLLM_RL = {"target": "confidence", "block_size": 32, "temperature": 0.1}
DLLM_RL |= {"cache": "prefix", "window": 128}
OF_DREAM = {"eps": 1e-3, "block_size": None, "temperature": 0.1, "top_p": 0.9}
D1_ROWS, DLLM_ROWS = [(128, 64), (256, 128), (512, 256)], [(1024, 1024)]
PROTOCOLS = {
    **{f"llada_{name}": (LLADA, "static", D1, D1_ROWS, 1, "<reasoning>") for name in D1_SETS},
    **{f"llada_{name}": (LLADA, "static", DLLM_RL, DLLM_ROWS, 3, "") for name in DLLM_SETS},
    **{
        f"dream_{name}": (DREAM, "entropy", OF_DREAM, [(n, n)], 1, "")
        for name, n in {"gsm8k": 256, "humaneval": 768, "mbpp": 1024}.items()
    },
}
"""Benchmarks of d1, dLLM-RL and Dream's authors: model, sampler and its settings, lengths with
their steps, completions of a prompt and what they begin with."""


@pytest.mark.parametrize("name", PROTOCOLS)
def test_text_benchmarks_have_the_protocol_of_their_authors(name: str) -> None:
    config = load_config(EvalConfig, [f"config=configs/eval/{name}.yaml"])
    path, sampler, settings, lengths, number, prefill = PROTOCOLS[name]
    rows = config.rows().values()
    assert [(row.length, row.sampler.steps) for row in rows] == lengths
    for row in rows:
        assert row.sampler.name == sampler
        assert {key: getattr(row.sampler, key) for key in settings} == settings
    assert (config.model.path, config.num_samples) == (path, number)
    assert config.assistant_prefill == prefill and config.model.vq is None


@pytest.mark.parametrize("name", ["gsm8k", "humaneval", "mbpp", "livecodebench"])
def test_the_benchmarks_of_trado_are_those_of_dllm_rl(name: str) -> None:
    config = load_config(EvalConfig, [f"config=configs/eval/trado_{name}.yaml"])
    assert (config.model.path, config.num_samples) == ("Gen-Verse/TraDo-8B-Instruct", 3)
    (dynamic, _), (static, _) = rows = config.rows().values()
    for each, length in rows:
        assert (length, each.steps, each.block_size, each.eos) == (2000, 2000, 4, "stop")
    assert (dynamic.name, dynamic.threshold, dynamic.at_least) == ("dynamic", 0.9, "quota")
    assert (static.name, static.top_k, dynamic.top_k) == ("static", 1, 0)


@pytest.mark.parametrize(
    ("name", "mask", "rows"),
    [("sdar_trace_rl", "trace", 4), ("sdar_trace_rl_value", "trace", 4)]
    + [("sdar_trace_rl_code", "trace", 4), ("trado_trace_rl", "trace", 4)]
    + [("sdar_random_masking", "uniform", 1), ("sdar_coupled", "complementary", 2)],
)
def test_the_sdar_recipes_are_dllm_rls(name: str, mask: str, rows: int) -> None:
    config = load_config(RLConfig, [f"config=configs/rl/{name}.yaml"])
    task = config.tasks["questions"]
    algorithm, sampler = load_algorithm(task.algorithm), task.sampler
    rollouts = task.num_prompts * task.num_generations
    assert (task.num_prompts, task.num_generations) == (64, 16) and config.max_steps == 80
    assert (sampler.name, sampler.threshold, sampler.at_least) == ("dynamic", 0.9, "quota")
    assert (sampler.temperature, sampler.block_size, sampler.steps) == (1, 4, 2000)
    assert (algorithm.strategy, algorithm.aggregation, algorithm.beta) == (mask, "dr_grpo", 0.01)
    assert (algorithm.kl, algorithm.kl_to, algorithm.epsilon) == ("k3", "old", 0.2)
    assert passes_per_rollout(algorithm, sampler.steps, 2000, 4) == rows
    assert rollouts * rows // config.num_mini_batches == 256


@pytest.mark.parametrize(
    ("name", "tokens", "of_llada_v"),
    [("seed_bench", 128, (2, 2)), ("mmmu", 256, (2, 2)), ("mathvista", 256, (96, 48))],
)
def test_the_benchmarks_of_images_are_those_of_their_authors(
    name: str, tokens: int, of_llada_v: tuple[int, int]
) -> None:
    words = ([f"config=configs/eval/{model}_{name}.yaml"] for model in ("mmadav", "lladav"))
    ours, beside = (load_settings(each, VISION_TASKS) for each in words)
    expected = (tokens, tokens, 64, "free"), (*of_llada_v, None, "leave")
    for config, (*steps, block_size, eos) in zip((ours, beside), expected, strict=True):
        [(sampler, length)] = config.rows().values()
        assert ([length, sampler.steps], sampler.eos) == (steps, eos)
        assert sampler.block_size == block_size
        assert (sampler.name, sampler.temperature, sampler.cfg_scale) == ("static", 0, 0)
    assert (ours.prompts, ours.rewards) == (beside.prompts, beside.rewards)
    assert ours.data.template.endswith("\\boxed{{}}.") and "{hint}" in ours.data.template
    fit = "pad" if name == "seed_bench" else "squash"  # dLLM-RL's, MMaDA's
    assert own_vq(ours.model) == "showlab/magvitv2" and ours.model.image_fit == fit
    assert (beside.task, beside.data.format, beside.num_samples) == ("image_to_text", name, 1)
    assert beside.data.template.endswith("/think" if name == "mathvista" else "/no_think")
    assert beside.model.path == "GSAI-ML/LLaDA-V"


def hub_ids(value: Any) -> set[str]:
    """Data sets of the hub that settings name."""
    if isinstance(value, list):
        return {found for each in value for found in hub_ids(each)}
    if not isinstance(value, dict):
        return set()
    keys = ("prompts", "eval_prompts", "data", "eval_data")
    texts = [value[key] for key in keys if isinstance(value.get(key), str)]
    named = {text for text in texts if is_hub_id(text) and "/" in text and not Path(text).suffix}
    return named | hub_ids(list(value.values()))


def test_the_page_of_data_sets_downloads_every_set_of_the_configurations() -> None:
    files = (ROOT / "configs").rglob("*.yaml")
    named = {found for file in files for found in hub_ids(yaml.safe_load(file.read_text()))}
    page = (ROOT / "docs" / "datasets.md").read_text()
    (listed,) = re.findall(r"^for id in (.*?); do hf download", page, re.MULTILINE | re.DOTALL)
    assert set(listed.replace("\\", " ").split()) == named


@pytest.mark.parametrize("path", configurations("judge"))
def test_a_judges_template_shows_the_prompt_and_no_answer_but_where_it_says_so(path: str) -> None:
    template, header = load_template(Path(path).stem), Path(path).read_text().partition("\ntext")[0]
    assert "prompt" in template.fields
    assert ("answer" in template.fields) == ("prompt's answer" in " ".join(header.split("\n# ")))


@pytest.mark.parametrize("path", configurations("accelerate"))
def test_every_launch_configuration_is_read_by_accelerate_and_fixes_no_precision(path: str) -> None:
    loaded = load_config_from_file(path)
    kind, sharding = loaded.distributed_type.value, loaded.fsdp_config or {}
    assert loaded.num_processes >= 1 and kind in {"NO", "MULTI_GPU", "FSDP", "DEEPSPEED"}
    assert kind != "FSDP" or sharding["fsdp_version"] == 2
    assert yaml.safe_load(Path(path).read_text(encoding="utf-8"))["mixed_precision"] == "no"


@pytest.mark.parametrize(
    "path", [p for f in ("rl", "sft", "eval", "reward_server", "sweep") for p in configurations(f)]
)
def test_a_configuration_says_what_it_is_for_and_starts_from_at_most_one_other(path: str) -> None:
    line = Path(path).read_text(encoding="utf-8").splitlines()[0]
    assert line.startswith("# ") and line.endswith(".") and 30 <= len(line) <= 100
    assert line.startswith(f"# {first_line(ROOT / path)}") and len(find_chain(path)) <= 2


def keys_of(section: Any) -> set[str]:
    """The keys of a section and of all that are below it."""
    own = set(section) if isinstance(section, dict) else set()
    inner = section.values() if isinstance(section, dict) else section
    return own.union(*map(keys_of, inner)) if isinstance(section, dict | list) else own


@pytest.mark.parametrize("path", [p for f in ("rl", "sft", "eval") for p in configurations(f)])
def test_a_configuration_is_short_and_fixes_nothing_that_follows_the_device(path: str) -> None:
    text = Path(path).read_text(encoding="utf-8")
    fixed = {"bf16", "attn_implementation", "torch_compile"}
    assert len(text.splitlines()) <= 45 and not fixed & keys_of(yaml.safe_load(text))


@pytest.mark.parametrize("name", RECIPES)
def test_the_image_recipes_are_maskgrpo_on_mmada(name: str) -> None:
    config = load_config(RLConfig, [f"config=configs/rl/mmada_t2i_{name}.yaml"])
    task = config.tasks["images"]
    algorithm = load_algorithm(task.algorithm)
    assert config.model.path == "Gen-Verse/MMaDA-8B-MixCoT" and config.model.image_size == 512
    assert own_vq(config.model) == "showlab/magvitv2" and config.model.mask_policy == "ignore"
    assert config.model.lora is not None and len(config.model.lora.target_modules) == 7
    assert (config.model.dtype, config.model.max_prompt_length) == ("bfloat16", 256)
    rate, guidance, iterations, epsilon = RECIPES[name]
    sampler = task.sampler
    assert (sampler.name, sampler.steps, sampler.cfg_scale) == ("emerge", 12, guidance)
    assert (task.num_generations, algorithm.num_iterations) == (9, iterations)
    assert (algorithm.min_mask_rate, algorithm.epsilon) == (rate, epsilon)
    assert (algorithm.beta, algorithm.cfg_scale) == (0.01, 0.0)


def test_an_image_recipe_from_the_base_model_differs_in_nothing_else() -> None:
    for name in BASES:
        paths = [f"config=configs/rl/{model}_t2i_{name}.yaml" for model in ("mmada", "mmada_base")]
        instruct, base = (load_config(RLConfig, [path]) for path in paths)
        assert base.model.path == "Gen-Verse/MMaDA-8B-Base"
        assert base.output_dir == f"runs/mmada_base_t2i_{name}"
        own = {"model": instruct.model, "output_dir": instruct.output_dir}
        assert replace(base, **own, notes=instruct.notes) == instruct


@pytest.mark.parametrize("path", [p for p in configurations("rl") if is_public(p)])
def test_every_public_recipe_divides_among_1_to_8_devices_and_repeats_no_default(path: str) -> None:
    config = load_config(RLConfig, [f"config={path}"])
    for processes in (1, 2, 4, 8):
        for run in config.runs.values():
            check_geometry(run, processes)
    defaults, base = RLConfig.__dataclass_fields__, read_yaml(find_chain(path)[-1])
    values = {k: v for k, v in read_yaml(path).items() if base.get(k, v) == v}
    repeated = [k for k, v in values.items() if defaults[str(k)].default == v]
    assert not repeated, repeated


@pytest.mark.parametrize("task", TEXT)
def test_the_text_recipes_are_llada_under_the_d1_protocol(task: str) -> None:
    config = load_config(RLConfig, [f"config=configs/rl/llada_{task}.yaml"])
    settings, lora = config.tasks[task], config.model.lora
    assert (config.model.path, config.model.vq) == ("GSAI-ML/LLaDA-8B-Instruct", None)
    assert lora is not None and (lora.r, lora.lora_alpha, len(lora.target_modules)) == (128, 64, 7)
    for sampler, temperature in ((settings.sampler, 0.9), (settings.eval_sampler, 0.0)):
        assert sampler is not None and sampler.temperature == temperature
        assert (sampler.name, sampler.steps, sampler.block_size) == ("static", 128, 32)
    assert (settings.num_generations, settings.max_completion_length) == (6, 256)
    algorithm = load_algorithm(settings.algorithm)
    assert (algorithm.name, algorithm.epsilon, algorithm.beta) == ("diffu_grpo", 0.5, 0.04)
    assert algorithm.num_iterations == (8 if task == "sudoku" else 12)
    assert (config.learning_rate, config.adam_beta2, config.max_grad_norm) == (3e-6, 0.99, 0.2)


@pytest.mark.parametrize("method", PRESETS)
def test_a_text_recipe_is_one_preset_away_from_every_method(method: str) -> None:
    words = ["config=configs/rl/llada_gsm8k.yaml", f"tasks.gsm8k.algorithm.name={method}"]
    words += ["tasks.gsm8k.sampler.name=fork"] * (method == "fork_grpo")  # which draws its forks
    settings = load_config(RLConfig, words).tasks["gsm8k"]
    row, preset = load_algorithm(settings.algorithm), load_algorithm({"name": method})
    assert row == replace(preset, num_iterations=row.num_iterations) and row.name == method


@pytest.mark.parametrize("family", VISION)
@pytest.mark.parametrize("method", VISION_METHODS)
def test_the_vision_recipes_are_dllm_rls(family: str, method: str) -> None:
    config = load_config(RLConfig, [f"config=configs/rl/{family}_{method}.yaml"])
    [task], (path, _, size, sampling) = config.tasks.values(), VISION[family]
    sampler, algorithm = task.sampler, load_algorithm(task.algorithm)
    assert (config.model.path, task.task, task.num_generations) == (path, "image_to_text", size)
    assert (sampler.steps, sampler.block_size, sampler.threshold, sampler.eos) == sampling
    assert (sampler.name, sampler.temperature) == ("dynamic", 0.8)
    assert task.max_completion_length == sampler.steps
    mask, passes = VISION_METHODS[method]
    assert algorithm.strategy == mask and algorithm.num_iterations == 1
    if passes is not None:
        assert passes_per_rollout(algorithm, sampler.steps, sampler.steps) == passes
        assert (algorithm.min_mask_rate, algorithm.max_mask_rate) == (0.1, 0.9)
    assert (algorithm.epsilon, algorithm.beta, algorithm.kl_to) == (0.2, 0.01, "old")
    assert (algorithm.value is not None) == method.endswith("value")


@pytest.mark.parametrize("family", VISION)
def test_a_vision_recipe_is_planned_by_the_sizes_of_its_model_and_takes_other_questions(
    family: str, tmp_path: Path
) -> None:
    Image.new("RGB", (40, 30)).save(tmp_path / "one.png")
    row = {"image": "one.png", "question": "How many?", "ground_truth_answer": "3"}
    (tmp_path / "rows.json").write_text(json.dumps([row]))
    words = [
        f"tasks.questions.{key}={tmp_path / 'rows.json'}" for key in ("prompts", "eval_prompts")
    ]
    words += ["tasks.questions.data.format=dllm_rl"]
    words += ["~tasks.questions.data.columns", "~tasks.questions.eval_data"]
    words += [f"config=configs/rl/{family}_trace_rl.yaml", f"output_dir={tmp_path / 'run'}"]
    said = str(describe(load_config(RLConfig, words)))
    assert f"sizes are those of {VISION[family][1]}" in said
    assert "1 to train on" in said and "0.5 x math" in said


def test_a_text_recipe_whose_data_is_on_the_hub_has_a_dry_run_without_it(tmp_path: Path) -> None:
    words = ["config=configs/rl/llada_gsm8k.yaml", f"output_dir={tmp_path / 'run'}"]
    said = str(describe(load_config(RLConfig, words)))
    assert "openai/gsm8k, not on this machine: loaded from the hub, train and held out" in said
    assert "sizes are those of LLaDA-8B" in said and "ready, nothing to score" in said


def test_prompts_of_text_recipes_ask_for_the_tags_that_the_rewards_read(tmp_path: Path) -> None:
    rows = [{"nums": [3, 4, 5], "target": 12}, {"nums": [1, 2, 3, 4], "target": 10}]
    (tmp_path / "countdown.json").write_text(json.dumps(rows))
    for task, key in (("countdown", "numbers"), ("sudoku", "puzzle")):
        settings = load_config(RLConfig, [f"config=configs/rl/llada_{task}.yaml"]).tasks[task]
        source = settings.prompts if task == "sudoku" else str(tmp_path / "countdown.json")
        prompts = load_prompts(source, "text", replace(settings.data, split=None))
        assert task == "sudoku" or len(prompts) == 1  # d1 leaves out those of four numbers
        for prompt in prompts[:3]:
            assert "<reasoning>\n...\n</reasoning>\n<answer>\n...\n</answer>" in prompt.text
            assert str(prompt.metadata[key]) in prompt.text


@pytest.mark.parametrize("path", configurations("sweep"))
def test_every_study_makes_its_choices_on_other_prompts_and_has_controls(path: str) -> None:
    config = load_config(sweep.Config, [f"config={path}"])
    assert config.controls and (not config.grid or "validation" in " ".join(config.trial))
