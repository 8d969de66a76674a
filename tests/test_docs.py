"""README and docs describe what is there: commands, links, code, settings, metrics and drawings."""

import ast
import importlib
import itertools
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from mmrl.config import load_config
from mmrl.config.help import about, overview
from mmrl.demo.demo_config import DemoConfig
from mmrl.evaluation.eval_config import TEXT_TASKS, VISION_TASKS
from mmrl.evaluation.eval_config import load_settings as load_benchmark
from mmrl.probe import ProbeConfig
from mmrl.rewards import REWARDS, check_reward
from mmrl.rewards.server.server_config import ServerConfig
from mmrl.rl_config import RLConfig
from mmrl.sft import SFTConfig
from tests.by_path import load

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *DOCS, *ROOT.glob("datasets/**/*.md")]
TEXT = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
TUTORIAL = load(ROOT / "scripts", "docs_pages").notebook_page(ROOT / "docs" / "tutorial.ipynb")
TEXT["docs/tutorial.ipynb"] = re.sub(r"!\[output\]\(.*?\)", "", TUTORIAL)
SETTINGS = {"mmrl.rl": RLConfig, "mmrl.sft": SFTConfig, "mmrl.probe": ProbeConfig}
SETTINGS |= {"mmrl.demo": DemoConfig, "mmrl.rewards.server": ServerConfig}
EXECUTABLE = ("mmrl.rl", "mmrl.sft", "mmrl.eval", "mmrl.eval_v", "mmrl.probe")
FILES_OF_THE_USER = ("mbpp.jsonl", "evaluation_metadata.jsonl", "SEED-Bench.json", "questions.json")
FOLDERS_OF_THE_USER = ("recorded", "SEED-Bench-image")
OF_A_CHECKOUT = ("configs", "datasets", "docs", "scripts", "Makefile", "pyproject.toml", ".venv")


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def all_blocks(language: str) -> list[Any]:
    """Every code block of a language, with its page as the name of the test."""
    return [
        pytest.param(block, id=f"{name}:{n}")
        for name, text in TEXT.items()
        for n, block in enumerate(blocks(language, text))
    ]


def commands() -> list[str]:
    """Shell lines of the code blocks, and complete commands quoted in the text."""
    found: list[str] = []
    for name, text in TEXT.items():
        parts = blocks("bash", text)
        if name.startswith("datasets"):  # the cards indent their commands
            parts += re.findall(r"^ {4}(python .*\n)", text, re.MULTILINE)
        found += [line for block in parts for line in block.splitlines() if line.strip()]
        found += re.findall(r"`((?:python|accelerate|make|pip|source) [^`]*)`", text)
    return [line for line in dict.fromkeys(found) if "…" not in line]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like the checkout, with the files that a reader brings along."""
    for name in OF_A_CHECKOUT:
        (tmp_path / name).symlink_to(ROOT / name)
    for name in FILES_OF_THE_USER:
        (tmp_path / name).write_text("")
    for name in FOLDERS_OF_THE_USER:
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


VLLM_FLAGS = {"--port", "--max-model-len", "--limit-mm-per-prompt", "--logprobs-mode"}
VLLM_FLAGS |= {"--worker-extension-cls", "--weight-transfer-config"}
"""Of `vllm serve` 0.33, as far as the pages have them."""


def check_command(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise, or fail an assertion, unless the command names real files and valid settings."""
    program, *rest = [word for word in words if not word.startswith("VLLM_SERVER_DEV_MODE=")]
    if program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert rest[0] in targets
        given = dict(word.split("=", 1) for word in rest[1:])
        kind = f"_{given['KIND']}" if "KIND" in given else ""
        words = [f"config=configs/rl/quickstart{kind}.yaml", *given.get("ARGS", "").split()]
        load_config(RLConfig, words)
    elif program == "pip":
        named = re.fullmatch(r"\.\[(.+)\]", rest[-1])
        assert rest[:2] == ["install", "-e"] and named
        assert set(named[1].split(",")) <= set(extras())
    elif program == "accelerate":
        from accelerate.commands.launch import launch_command_parser

        arguments = launch_command_parser().parse_args(rest[1:])
        assert rest[0] == "launch" and arguments.module
        assert Path(arguments.config_file).is_file()
        assert load_settings(arguments.training_script, arguments.training_script_args)
    elif program == "torchrun":
        from torch.distributed.run import get_args_parser

        arguments = get_args_parser().parse_args(rest)
        assert arguments.module
        assert load_settings(arguments.training_script, arguments.training_script_args)
    elif program == "sbatch":
        launched = rest[rest.index("scripts/launch_slurm.sh") + 1 :]
        assert Path(launched[0]).is_file() and launched[1] == "-m"
        assert load_settings(launched[2], launched[3:])
    elif program == "vllm":
        assert rest[0] == "serve" and {word for word in rest if word.startswith("--")} <= VLLM_FLAGS
    elif words == ["python", "-m", "mmrl"]:
        assert importlib.import_module("mmrl.__main__")
    elif program == "python" and rest[0] == "-m":
        assert load_settings(rest[1], rest[2:])
    elif rest[0] == "scripts/launch_ray.py":
        placed = load(ROOT / "scripts", "launch_ray").RayConfig
        servers = load_config(placed, [rest[1].replace("launch=", "config=")]).servers
        own = " ".join(rest[3:])
        for name in servers:
            own = own.replace(f"{{{name}}}", "'http://node1:8000'")
        assert load_settings("mmrl.rl", [rest[2], own])
    elif program == "python":
        script = ROOT / rest[0]
        monkeypatch.syspath_prepend(script.parent)
        module = load(script.parent, script.stem)
        config = getattr(module, "Config", None) or module.Setting
        load_config(config, rest[1:])
    else:
        assert words == ["source", ".venv/bin/activate"], "no check for this program"


def dependencies() -> list[str]:
    project = (ROOT / "pyproject.toml").read_text()
    return re.findall(r'^    "([\w-]+)>=', project.split("[project.optional")[0], re.MULTILINE)


def extras() -> list[str]:
    project = (ROOT / "pyproject.toml").read_text()
    section = project.split("[project.optional-dependencies]")[1].split("\n[")[0]
    return re.findall(r"^(\w+) =", section, re.MULTILINE)


def load_settings(module: str, words: list[str]) -> object:
    """Settings of an entry point, or what its help says of a section."""
    if not words or words[0] == "--help":
        usage = importlib.import_module(
            module if module in EXECUTABLE else f"{module}.__main__"
        ).USAGE
        return overview(usage) if len(words) < 2 else about(usage, words[1])
    if module.startswith("mmrl.eval"):
        return load_benchmark(words, VISION_TASKS if module == "mmrl.eval_v" else TEXT_TASKS)
    return load_config(SETTINGS[module], words)


@pytest.mark.parametrize("command", commands())
def test_every_command_names_real_files_and_valid_settings(
    command: str, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_command(shlex.split(command, comments=True), monkeypatch)


@pytest.mark.parametrize("name", TEXT)
def test_a_page_is_readable_as_it_lies(name: str) -> None:
    """No directive of the site's builder; every link is a file that lies there and on the site."""
    directive = r"^(--8<--|:::|!!!|\?\?\?|===) .*|\{\{ .*?\}\}|^\{[:.#].*"
    prose = re.sub(r"^```(?!yaml).*?^```$|`[^`\n]*`", "", TEXT[name], flags=re.M | re.DOTALL)
    assert not re.search(directive, prose, re.MULTILINE)
    links = re.findall(r"\]\(([^)]+)\)", prose)
    for target, _, section in (link.partition("#") for link in links if "://" not in link):
        path = ROOT / Path(name).parent / target if target else ROOT / name
        assert path.is_file(), target
        folder = path.resolve().relative_to(ROOT).parts[0]
        assert not name.startswith("docs/") or folder in {"docs", "configs", "datasets"}, target
        titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE) if section else []
        anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
        assert not section or section in anchors, section


@pytest.mark.parametrize("name", TEXT)
def test_every_file_that_is_named_exists(name: str) -> None:
    named = re.findall(
        r"`((?:mmrl|models|rewards|eval|configs|datasets|docs|scripts|tests)/[^`<*: ]*)`",
        TEXT[name],
    )
    described = {"rewards/brightness.py"}
    assert not [path for path in named if path not in described and not (ROOT / path).exists()]


@pytest.mark.parametrize("block", all_blocks("python"))
def test_python_blocks_parse_and_import_names_that_exist(block: str) -> None:
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom):
            names = ", ".join(alias.name for alias in node.names)
            exec(f"from {node.module} import {names}", {})


def runnable() -> list[Any]:
    """Blocks that need neither an 8B checkpoint nor a run; the tutorial has a test of its own."""
    return [
        each
        for each in all_blocks("python")
        if not re.search(r"8B|train\(|theirs\(", str(each.values[0])) and "tutorial" not in each.id
    ]


@pytest.mark.parametrize("block", runnable())
def test_python_blocks_run(block: str, checkout: Path) -> None:
    exec(block, {})


def test_the_tutorial_runs_and_its_steps_make_better_rollouts_more_likely(checkout: Path) -> None:
    scope: dict[str, Any] = {}
    steps = 0
    for block in blocks("python", TUTORIAL):
        if "train(" not in block:
            exec(block, scope)
        if "moved =" in block:
            steps += 1
            assert float(scope["metrics"]["ratio"]) == 1
            assert float((scope["moved"].sum((0, 2)) * scope["advantages"]).sum()) > 0
    assert steps == 2, "of a masked policy and of one of latents"


def test_the_notebook_is_one_whose_outputs_are_those_of_its_cells() -> None:
    notebook = json.loads((ROOT / "docs" / "tutorial.ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    shows = [cell["source"][-1].startswith(("print(", "show(")) for cell in code]
    assert notebook["nbformat"] == 4 and [bool(cell["outputs"]) for cell in code] == shows


def test_the_reward_of_the_page_scores_images() -> None:
    from PIL import Image

    from mmrl.rewards.registry.reward_options import check_options
    from mmrl.types import Sample

    scope: dict = {}
    page = TEXT["docs/how_to/rewards.md"]
    exec(next(block for block in blocks("python", page) if "class " in block), scope)
    reward = scope["BrightnessReward"]
    options = check_options(reward, {"wanted": 1}, "reward")
    samples = [Sample("", Image.new("RGB", (4, 4), color)) for color in ("white", "black")]
    assert reward(**options)(samples) == [1.0, 0.0]


@pytest.mark.parametrize("block", all_blocks("yaml"))
def test_yaml_blocks_parse_and_their_rewards_are_valid(block: str) -> None:
    content = yaml.safe_load(block) or {}
    entries = content.get("rewards", []) if isinstance(content, Mapping) else []
    for entry in entries:
        if ":" not in entry["name"]:  # a reader's own files are not here
            check_reward(entry)


def test_every_setting_named_for_users_of_trl_exists() -> None:
    from mmrl.config.setting_docs import walk

    keys = {row.key.rpartition(".")[2] for row in walk(RLConfig)}
    table = TEXT["docs/how_to/migrate_from_trl.md"].split("## GRPOConfig")[1].split("## ")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    for theirs, ours in rows:
        named = re.findall(r"`([^`]+)`", theirs if "the same" in ours else ours)
        assert named or ours.strip() == "none"
        assert not [key for key in named if key.rpartition(".")[2] not in keys], ours
    assert len(rows) > 25


def test_tables_of_methods_rewards_and_extras_are_complete() -> None:
    presets = {path.stem for path in (ROOT / "configs/algorithm").glob("*.yaml")}
    rows = {
        name: set(re.findall(r"^\| `([^`]+)`", TEXT[f"docs/reference/{name}.md"], re.MULTILINE))
        for name in ("methods", "rewards", "packages", "samplers")
    }
    assert presets <= rows["methods"]
    assert set(REWARDS) <= rows["rewards"]
    assert (
        set(extras()) - {"tensorboard", "trackio", "wandb", "swanlab", "prometheus"}
        <= rows["packages"]
    )
    assert not [name for name in dependencies() if name not in TEXT["README.md"]]
    from mmrl.generation.kinds import SAMPLERS

    named = re.findall(r"`(\w+)`", TEXT["docs/reference/samplers.md"])
    assert set(SAMPLERS) <= set(named)


def glossary() -> list[str]:
    table = TEXT["docs/reference/metrics.md"]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def logged_strings() -> Iterator[tuple[str, bool]]:
    """(string, is it complete) of the RL code, with `<>` for what an f-string fills in."""
    for path in [*(ROOT / "mmrl").rglob("*.py"), *(ROOT / "mmrl/rollouts/diversity").glob("*.py")]:
        if path.stem == "supervised_trainer":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        parts = {id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in n.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                pieces = [
                    str(v.value) if isinstance(v, ast.Constant) else "<>" for v in node.values
                ]
                yield "".join(pieces), False
            elif isinstance(node, ast.Constant) and id(node) not in parts:
                yield str(node.value), True


def test_every_metric_of_the_page_is_logged_by_the_code() -> None:
    strings = {text for text, _ in logged_strings()}
    unknown = [name for name in glossary() if re.sub(r"<\w+>", "<>", name) not in strings]
    assert len(glossary()) > 20 and not unknown, unknown


def test_every_metric_that_the_code_names_in_full_is_on_the_page() -> None:
    named = re.compile(r"(time|perf|clip_ratio|sampling)/[\w/]+")
    names = {text for text, complete in logged_strings() if complete and named.fullmatch(text)}
    assert len(names) > 5 and not names - set(glossary())


def test_the_pages_of_settings_have_every_key_with_its_meaning() -> None:
    from mmrl.config.setting_docs import walk

    pages = load(ROOT / "scripts", "docs_pages").generated_pages()
    keys = {row.key.rpartition(".")[2] for row in walk(RLConfig)}
    text = pages["settings/rl"] + pages["settings/rewards"]
    assert keys <= set(re.findall(r"^\| <code>(\w+)</code>", text, re.MULTILINE))
    assert not re.findall(r"^\| <code>\w+</code> \|.*\|  \|$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("title", "files", "lines"), [("The loop", 9, 1300), ("One method, end to end", 25, 3900)]
)
def test_what_is_to_be_read_is_short(title: str, files: int, lines: int) -> None:
    page = TEXT["docs/read_the_code.md"]
    named = [
        re.findall(
            r"^\d+\. `([^`]+)`", page.split(f"## {part}\n")[1].split("\n## ")[0], re.MULTILINE
        )
        for part in ("The loop", "One method, end to end")
    ]
    paths = named[0] if title == "The loop" else named[0] + named[1]
    total = sum(len((ROOT / path).read_text().splitlines()) for path in paths)
    assert len(set(paths)) == len(paths) <= files and total <= lines, (len(paths), total)


PRIVATE = (
    r"\b(told|stands?|stood|looked at|looks at|of (its|their) own|handful|stand-ins?|rehears\w+"
    r"|apprais\w+|film|likeliest|cut off|share right|dealt|pull|pictures?)\b"
)


@pytest.mark.parametrize("package", ["mmrl", "models", "rewards", "eval"])
def test_sources_use_the_words_of_the_field(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for match in re.finditer(PRIVATE, path.read_text(encoding="utf-8"))
    ]
    assert not found


@pytest.mark.parametrize("name", TEXT)
def test_pages_use_the_words_of_the_field(name: str) -> None:
    words = re.sub(r"```.*?```|`[^`]*`|\(.*?\)|^ {4}.*?$", "", TEXT[name], flags=re.DOTALL | re.M)
    allowed = ("Concepts in pictures", '"a picture of"', "pull request")
    for phrase in allowed:
        words = words.replace(phrase, "")
    assert not re.findall(PRIVATE, words)


def hardware_rows() -> list[Any]:
    """(configuration, GiB), one for each size, of recipes whose prompts are in the repository."""
    rows = re.findall(r"^\| (`.*?) \|.* ([\d.]+) GiB \|$", TEXT["docs/hardware.md"], re.MULTILINE)
    named = [(name, float(size)) for names, size in rows for name in re.findall(r"`(\w+)`", names)]
    of_the_hub = re.compile(
        "llada_|lladav_|mmada_v_|dream_|diffucoder_|sdar_|trado_|mmada_trace_rl"
    )
    local = {size: name for name, size in named if not of_the_hub.match(name)}
    return [pytest.param(name, size, id=name) for size, name in local.items()]


@pytest.mark.parametrize(("name", "size"), hardware_rows())
def test_the_memory_of_recipes_is_what_the_dry_run_estimates(name: str, size: float) -> None:
    from mmrl.planning.memory import estimate
    from mmrl.pretrained.known import find_sizes
    from mmrl.rollouts.tasks import Task
    from mmrl.runtime.placement import Placement

    config = load_config(RLConfig, [f"config=configs/rl/{name}.yaml"])
    tasks = [Task(key, options) for key, options in config.tasks.items()]
    needs = estimate(config, find_sizes(config.model.path)[1], tasks, Placement(device="cuda"))
    found = needs.peak()[1] / 2**30
    assert round(found, 1) == pytest.approx(size, abs=0.11)


WAYS = ("fsdp2", "zero3")
FULL = re.findall(
    r"^\| `(\w+_full)` \| ([\d.]+) GiB \| ([\d.]+) GiB \|$",
    TEXT["docs/recipes/index.md"],
    re.MULTILINE,
)


@pytest.mark.slow
def test_recipes_of_all_weights_fit_eight_devices_as_their_page_says() -> None:
    from mmrl.planning.memory import estimate
    from mmrl.planning.planned_launch import plan_placement, use_launch
    from mmrl.planning.reward_probe import offline
    from mmrl.pretrained.known import find_sizes
    from mmrl.rollouts.tasks import Task

    every = {path.stem for path in (ROOT / "configs" / "rl").glob("*_full.yaml")}
    said = {(name, way): float(n) for name, *own in FULL for way, n in zip(WAYS, own, strict=True)}
    # but one that is not sharded
    for name, way in itertools.product(sorted(every - {"amused_t2i_hps_full"}), WAYS):
        launch = str(ROOT / "configs" / "accelerate" / f"{way}.yaml")
        words = [f"config=configs/rl/{name}.yaml", "dry_run=true", "devices=8xH100-80GB"]
        config = load_config(RLConfig, [*words, f"launch_config={launch}"])
        with offline(), use_launch(launch, config.devices):
            tasks = [Task(key, options, dry=True) for key, options in config.tasks.items()]
            place = plan_placement(config, 8)
            needs = estimate(config, find_sizes(config.model.path)[1], tasks, place)
        found = needs.peak()[1]
        assert place.memory is not None and found < place.memory, (name, way)
        size = said.pop((name, way), None)
        assert size is None or round(found / 2**30, 1) == pytest.approx(size, abs=0.11), name
    assert not said
