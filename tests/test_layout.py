"""What the tree promises: who may import whom, and what no file may contain."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("mmrl", "models", "rewards", "eval")
TEXT_SUFFIXES = {".py", ".yaml", ".toml", ".md", ".txt", ".sh", ""}
SKIPPED_FOLDERS = {".hypothesis", ".git", ".venv", "runs", "build", "__pycache__"}


def own_files(*suffixes: str, under: str = ".") -> list[Path]:
    """Files of the project below `under`, without environments, runs and caches."""
    found = []
    for path in sorted((ROOT / under).rglob("*")):
        parts = path.relative_to(ROOT).parts
        hidden_cache = any(part.endswith(("_cache", ".egg-info")) for part in parts)
        if hidden_cache or SKIPPED_FOLDERS.intersection(parts):
            continue
        if path.is_file() and path.suffix in suffixes:
            found.append(path)
    return found


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


def imported_modules(path: Path) -> Iterator[str]:
    """Absolute names of the modules a file imports, wherever in the file it does so."""
    package = path.relative_to(ROOT).parent.parts
    for node in running_code(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            yield ".".join((*base, node.module or "")).rstrip(".")
        elif isinstance(node, ast.ImportFrom) and node.module == "mmrl":
            yield from (f"mmrl.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def imports_under(folder: str) -> list[tuple[Path, str]]:
    files = own_files(".py", under=folder) if (ROOT / folder).exists() else []
    return [(path.relative_to(ROOT), name) for path in files for name in imported_modules(path)]


def test_the_hugging_face_package_wins_the_name_datasets() -> None:
    spec = importlib.util.find_spec("datasets")
    assert not list((ROOT / "datasets").rglob("__init__.py"))
    assert spec is not None and spec.origin is not None, "install the `datasets` package"
    assert ROOT / "datasets" not in Path(spec.origin).parents


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_imported_from_this_checkout(package: str) -> None:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    assert Path(spec.origin).parent == ROOT / package


@pytest.mark.parametrize("package", ["models", "rewards"])
def test_models_and_rewards_know_only_the_records_of_mmrl(package: str) -> None:
    configuration = {
        "mmrl.config",
        "mmrl.config.by_name",
        "mmrl.config.written_name",
        "mmrl.config.shipped",
    }
    allowed = {"mmrl.types", "mmrl.randomness", *configuration}
    # the probe reads what a run is configured by
    of_entry_points = {
        "mmrl.config.command",
        "mmrl.preflight.probe",
        "mmrl.preflight.probe_config",
        "mmrl.begin",
        "mmrl.config.inputs",
    }
    wrong = [
        f"{path} imports {name}"
        for path, name in imports_under(package)
        if name.split(".")[0] == "mmrl"
        and name not in allowed | (of_entry_points if path.name == "__main__.py" else set())
    ]
    assert not wrong, wrong


SETTINGS = [
    "mmrl.rl",
    "mmrl.sft",
    "mmrl.eval",
    "mmrl.eval_v",
    "rewards.server.server_config",
    *(
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for folder in PACKAGES
        for path in own_files(".py", under=folder)
        if path.stem.endswith("_config") or path.stem == "settings"
    ),
]


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_and_commands_are_imported_without_torch(name: str) -> None:
    heavy = {"torch", "transformers", "accelerate", "peft", "datasets", "open_clip", "torchvision"}
    reached = loaded_with(name)
    assert "dataclasses" in reached
    assert not {each: reached[each] for each in reached if each.split(".")[0] in heavy}


def test_a_reward_is_imported_without_torch_so_that_its_options_are_checked_at_once() -> None:
    from rewards import REWARDS

    for path in REWARDS.values():
        assert "torch" not in loaded_with(path.partition(":")[0]), path


@pytest.mark.parametrize("part", ["samplers", "estimators", "algorithms"])
def test_samplers_estimators_and_algorithms_know_no_model_and_no_reward(part: str) -> None:
    wrong = [
        f"{path} imports {name}"
        for path, name in imports_under(f"mmrl/{part}")
        if name.split(".")[0] in {"models", "rewards", "eval"}
    ]
    assert not wrong, wrong


def test_no_module_needs_what_only_an_extra_brings_to_be_imported() -> None:
    optional = {"open_clip", "torchvision", "math_verify", "qwen_vl_utils", "diffusers", "wandb"}
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for package in PACKAGES
        for path in own_files(".py", under=package)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None), *(alias.name for alias in node.names)]
        if name and name.partition(".")[0] in optional
    ]
    assert not wrong, wrong


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


def test_no_file_has_a_name_that_says_nothing() -> None:
    empty_names = {"utils", "helpers", "helper", "misc", "common", "v2"}
    wrong = [
        path
        for folder in PACKAGES
        for path in own_files(".py", under=folder)
        if path.stem in empty_names
    ]
    assert not wrong, wrong


def test_every_package_folder_has_an_init_file() -> None:
    folders = {path.parent for package in PACKAGES for path in own_files(".py", under=package)}
    missing = [folder for folder in folders if not (folder / "__init__.py").exists()]
    assert not missing, missing
