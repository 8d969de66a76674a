"""What the tree promises: who may import whom, and what no file may contain."""

import ast
import functools
import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.import_graph import Graph, draw_imports, find_circles, find_modules, find_wrong_arrows

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("mmrl", "models", "rewards", "eval")
LINKED = {"models": "models", "rewards": "rewards", "evaluation": "eval", "configs": "configs"}
"""Names inside `mmrl`, each a link to a folder at the top level."""
TEXT_SUFFIXES = {".py", ".yaml", ".toml", ".md", ".txt", ".sh", ""}
SKIPPED_FOLDERS = {".hypothesis", ".git", ".venv", "runs", "build", "__pycache__"}


def own_files(*suffixes: str, under: str = ".") -> list[Path]:
    """Files of the project below `under`, without environments, runs and caches."""
    found = []
    for folder, folders, names in os.walk(ROOT / under):
        # in place: an environment has 80,000 files
        folders[:] = [
            name
            for name in folders
            if name not in SKIPPED_FOLDERS and not name.endswith(("_cache", ".egg-info"))
        ]
        kept = (Path(folder, name) for name in names if name not in SKIPPED_FOLDERS)
        found += [path for path in kept if path.suffix in suffixes]
    return sorted(found)


def running_code(node: ast.AST, functions: bool = True) -> Iterator[ast.AST]:
    """All nodes below `node`, without what only a type checker reads, and if wanted without what
    runs only when a function is called."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        if isinstance(child, ast.FunctionDef | ast.Lambda) and not functions:
            continue
        yield child
        yield from running_code(child, functions)


def loaded_with(name: str) -> dict[str, str]:
    """Modules that are imported with one of ours, each with the first of ours that imports it."""
    found, open_ = {name: ""}, [name]
    while open_:
        path = ROOT / Path(*(here := open_.pop()).split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if not path.is_file():
            continue
        packages = [here.rsplit(".", n)[0] for n in range(1, here.count(".") + 1)]
        for node in running_code(ast.parse(path.read_text(encoding="utf-8")), functions=False):
            names = [alias.name for alias in getattr(node, "names", ())]
            if isinstance(node, ast.ImportFrom):
                names = [str(node.module), *(f"{node.module}.{each}" for each in names)]
            packages += names if isinstance(node, ast.Import | ast.ImportFrom) else []
        for each in packages:
            if each not in found:
                found[each] = here
                open_.append(each)
    return found


ORDER = """
mmrl mmrl.randomness
mmrl.types
mmrl.config
mmrl.generation
mmrl.generation.tokens
mmrl.generation.masked mmrl.generation.flow
mmrl.generation.causal mmrl.generation.causal.canvas mmrl.generation.causal.images
mmrl.models mmrl.rewards
mmrl.runtime
mmrl.data
mmrl.generation.strategy
mmrl.generation.generation
mmrl.generation.tokens.scoring
mmrl.generation.masked.samplers
mmrl.generation.masked.strategies
mmrl.generation.masked.kind
mmrl.generation.causal.sampler_config
mmrl.generation.causal.engine_config
mmrl.generation.causal.sampler
mmrl.engines
mmrl.generation.causal.kind
mmrl.generation.flow.sampler_config
mmrl.generation.flow.scoring
mmrl.generation.flow.replay mmrl.generation.flow.renoise mmrl.generation.flow.last_steps
mmrl.generation.flow.sampler
mmrl.generation.flow.kind
mmrl.generation.kinds
mmrl.samplers
mmrl.algorithms
mmrl.estimators
mmrl.pretrained
mmrl.run
mmrl.training.adapter
mmrl.training.trainable
mmrl.objectives
mmrl.rollouts
mmrl.run_config
mmrl.rl_config mmrl.sft_config
mmrl.training
mmrl.planning
mmrl.demo mmrl.evaluation
""".strip().splitlines()
"""Rooms from bottom to top: each imports what is above its line. What is trained (LoRA, frozen
parts) is a lower room inside `mmrl.training`. Commands, below them all, are imported by nobody."""


def is_command(path: Path) -> bool:
    """Whether a file is a program, named `__main__.py` or with the line that makes it one."""
    return path.name == "__main__.py" or any(
        isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"
        for node in ast.parse(path.read_text(encoding="utf-8")).body
    )


MODULES = find_modules(ROOT, ["mmrl"])
COMMANDS = {name for name, path in MODULES.items() if is_command(path)}


@functools.cache
def read_graph() -> Graph:
    """The imports of the packages."""
    return draw_imports(MODULES)


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert find_circles(read_graph()) == []


def test_imports_lead_from_a_room_to_an_earlier_one() -> None:
    assert find_wrong_arrows(read_graph(), ORDER, COMMANDS) == []


MOST_ENTRIES = {"mmrl": 27, "rewards": 34, "models": 15}
MOST_FILES = 25


def test_no_folder_of_a_package_is_a_long_list() -> None:
    for folder in {path.resolve().parent for path in MODULES.values()}:
        name = folder.relative_to(ROOT).as_posix()
        paths = {path.relative_to(folder) for path in own_files(".py", ".md", under=name)}
        files, entries = {p for p in paths if len(p.parts) == 1}, {p.parts[0] for p in paths}
        assert len(files) <= MOST_FILES, f"{name} has {len(files)} files side by side"
        assert len(entries) <= MOST_ENTRIES.get(name, 99), f"{name} has {len(entries)} entries"


def test_the_hugging_face_package_wins_the_name_datasets() -> None:
    spec = importlib.util.find_spec("datasets")
    assert not list((ROOT / "datasets").rglob("__init__.py"))
    assert spec is not None and spec.origin is not None, "install the `datasets` package"
    assert ROOT / "datasets" not in Path(spec.origin).parents


def test_all_of_the_package_is_imported_from_this_checkout() -> None:
    for name in ("mmrl", "mmrl.models", "mmrl.rewards", "mmrl.evaluation"):
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        assert Path(spec.origin).parent == ROOT.joinpath(*name.split("."))


def test_folders_of_the_top_level_are_linked_inside_the_package() -> None:
    links = {
        path.name: os.readlink(path) for path in (ROOT / "mmrl").iterdir() if path.is_symlink()
    }
    assert links == {name: f"../{folder}" for name, folder in LINKED.items()}


def test_no_file_imports_a_linked_folder_by_its_name_at_the_top_level() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in own_files(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in _imported_names(node)
        if name.partition(".")[0] in {"models", "rewards", "eval"}
    ]
    assert not wrong, wrong


def _imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""] if not node.level else []
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


SETTINGS = [
    "mmrl.sft",
    "mmrl.eval",
    "mmrl.eval_v",
    "scripts.miniature",
    "mmrl.config.settings",
    *(name for name in MODULES if name.endswith("_config")),
]


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_and_commands_are_imported_without_torch(name: str) -> None:
    heavy = {"torch", "transformers", "accelerate", "peft", "datasets", "open_clip", "torchvision"}
    reached = loaded_with(name)
    assert "dataclasses" in reached
    assert not {each: reached[each] for each in reached if each.split(".")[0] in heavy}


def test_a_reward_is_imported_without_torch_so_that_its_options_are_checked_at_once() -> None:
    from mmrl.rewards import REWARDS

    for path in REWARDS.values():
        assert "torch" not in loaded_with(path.partition(":")[0]), path


@pytest.mark.parametrize("part", ["samplers", "estimators", "algorithms"])
def test_samplers_estimators_and_algorithms_know_no_model_and_no_reward(part: str) -> None:
    wrong = [
        f"{name} loads {other}"
        for name in MODULES
        if name.startswith(f"mmrl.{part}")
        for other in loaded_with(name)
        if other.startswith(("mmrl.models", "mmrl.rewards", "mmrl.evaluation"))
    ]
    assert not wrong, wrong


BEHIND_AN_EXTRA = (
    *("rewards/server/", "models/image_tokenizers/vq_model.py"),
    *("mmrl/engines/server_app.py", "mmrl/engines/vllm_worker.py"),
)
"""Files that are themselves imported only where their extra is wanted."""


def test_no_module_needs_what_only_an_extra_brings_to_be_imported() -> None:
    optional = {"open_clip", "torchvision", "math_verify", "qwen_vl_utils", "vllm", "diffusers"}
    optional |= {"deepspeed", "bitsandbytes", "starlette", "uvicorn", "pydantic", "gradio"}
    optional |= {"tensorboard", "trackio", "wandb", "prometheus_client", "playwright"}
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for folder in FOLDERS
        for path in own_files(".py", under=folder)
        if not str(path.relative_to(ROOT)).startswith(BEHIND_AN_EXTRA)
        for node in running_code(ast.parse(path.read_text(encoding="utf-8")), functions=False)
        for name in _loaded_names(node)
        if name.partition(".")[0] in optional
    ]
    assert not wrong, wrong


def _loaded_names(node: ast.AST) -> list[str]:
    """Modules that a statement imports, by its name or by a call."""
    if isinstance(node, ast.Call) and re.search(r"import_(extra|module)$", ast.unparse(node.func)):
        return [str(word.value) for word in node.args[:1] if isinstance(word, ast.Constant)]
    return _imported_names(node)


def test_literal_token_ids_stay_inside_models() -> None:
    token_id = re.compile(r"\b(12608\d|12609\d|12633\d|12634\d)\b")
    folders = ("mmrl", "rewards", "eval", "scripts", "configs")
    wrong = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for folder in folders
        for path in own_files(".py", ".yaml", under=folder)
        for match in token_id.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, wrong


def test_the_loop_does_not_know_the_words_of_one_kind_of_generation() -> None:
    words = re.compile(r"\b(mask|mask_id|hidden|written_at|vocab)\b")
    rooms = ("mmrl/generation/masked", "mmrl/objectives", "mmrl/demo")
    wrong = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in own_files(".py", ".j2", under="mmrl")
        if not path.relative_to(ROOT).as_posix().startswith(rooms)
        for match in words.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, wrong


def test_no_file_names_a_package_registry_or_a_private_place() -> None:
    forbidden = re.compile(
        r"pypi\.(org|python)|pythonhosted|(extra-)?index-url|find-links|"
        r"download\.pytorch\.org|/work/(main|shared)|/home/\w+/|/root/",
        re.IGNORECASE,
    )
    wrong = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in own_files(*TEXT_SUFFIXES)
        if path != Path(__file__).resolve()
        for match in forbidden.finditer(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert not wrong, wrong
