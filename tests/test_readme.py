"""The README says what is there: its commands, links, code blocks and metric names."""

import ast
import importlib
import importlib.util
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmrl import eval_v
from mmrl.config import load_config
from mmrl.eval import EvalConfig as TextEvalConfig
from mmrl.preflight.probe_config import ProbeConfig
from mmrl.rl_config import RLConfig
from mmrl.sft import SFTConfig
from rewards.server.server_config import ServerConfig

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
SETTINGS = {
    "mmrl.rl": RLConfig,
    "mmrl.sft": SFTConfig,
    "mmrl.eval": TextEvalConfig,
    "mmrl.probe": ProbeConfig,
    "rewards.server": ServerConfig,
}
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(str(p) for p in ROOT.glob("datasets/**/*.md"))]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Shell lines of the code blocks, and complete commands quoted in the text."""
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.strip()]
    quoted = re.findall(r"`((?:python|accelerate|make|pip|source) [^`]*)`", TEXT)
    return list(dict.fromkeys([*lines, *quoted]))


def check_command(words: list[str]) -> None:
    """Raise, or fail an assertion, unless the command names real files and valid settings."""
    program, *rest = words
    if program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert rest[0] in targets
    elif program == "pip":
        project = (ROOT / "pyproject.toml").read_text()
        section = project.split("[project.optional-dependencies]")[1].split("\n[")[0]
        extras = re.findall(r"^(\w+) =", section, re.MULTILINE)
        named = re.fullmatch(r"\.\[(.+)\]", rest[-1])
        assert rest[:2] == ["install", "-e"] and named
        assert set(named[1].split(",")) <= set(extras)
    elif program == "accelerate":
        from accelerate.commands.launch import launch_command_parser

        arguments = launch_command_parser().parse_args(rest[1:])
        assert rest[0] == "launch" and arguments.module
        assert Path(arguments.config_file).is_file()
        load_settings(arguments.training_script, arguments.training_script_args)
    elif words == ["python", "-m", "mmrl"]:
        assert importlib.import_module("mmrl.__main__")
    elif program == "python" and rest[0] == "-m":
        load_settings(rest[1], rest[2:])
    elif program == "python":
        load_config(script_settings(rest[0]), rest[1:])
    else:
        assert words == ["source", ".venv/bin/activate"], "no check for this program"


def load_settings(module: str, words: list[str]) -> object:
    """Settings of an entry point."""
    return eval_v.load(words) if module == "mmrl.eval_v" else load_config(SETTINGS[module], words)


def script_settings(path: str) -> type:
    """The `Config` of a script, loaded by its path."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Config


@pytest.mark.parametrize("command", commands())
def test_every_command_names_real_files_and_valid_settings(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    check_command(shlex.split(command, comments=True))


def test_a_wrong_setting_in_a_command_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(ValueError, match="max_stepz"):
        check_command(
            shlex.split("python -m mmrl.rl config=configs/rl/quickstart.yaml max_stepz=1")
        )


@pytest.mark.parametrize("page", PAGES)
def test_every_relative_link_and_image_is_a_file(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\(([^)]+)\)", path.read_text(encoding="utf-8"))
    for name, _, section in (link.partition("#") for link in links if "://" not in link):
        target = path.parent / name if name else path
        assert target.exists(), name
        titles = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE) if section else []
        assert not section or section in {title.lower().replace(" ", "-") for title in titles}


def test_every_file_named_in_the_tree_and_in_the_tables_exists() -> None:
    tree = next(block for block in blocks("text") if block.startswith("mmrl/"))
    named = re.findall(
        r"`((?:mmrl|models|rewards|eval|configs|datasets|scripts|tests)/[^`<*]*)`", TEXT
    )
    described = {"rewards/brightness.py"}
    assert not [name for name in named if name not in described and not (ROOT / name).exists()]
    for line in tree.splitlines():
        folder = "mmrl" if line.startswith("  ") else "."
        columns = re.split(r"\s{2,}", line.strip())
        names = [name for name in columns[0].split() if re.search(r"/$|\.py$", name)]
        assert names and not [name for name in names if not (ROOT / folder / name).exists()], line


@pytest.mark.parametrize("block", blocks("python"))
def test_python_blocks_parse_and_import_names_that_exist(block: str) -> None:
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(str(node.module))
            assert all(hasattr(module, alias.name) for alias in node.names)


def test_the_reward_of_the_readme_scores_images() -> None:
    from PIL import Image

    from mmrl.types import Sample
    from rewards.options import check_options

    scope: dict = {}
    exec(next(block for block in blocks("python") if "class " in block), scope)
    reward = scope["BrightnessReward"]
    options = check_options(reward, {"wanted": 1}, "reward")
    samples = [Sample("", Image.new("RGB", (4, 4), color)) for color in ("white", "black")]
    assert reward(**options)(samples) == [1.0, 0.0]


def glossary() -> list[str]:
    table = TEXT.split("## Metrics")[1].split("## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def logged_strings() -> Iterator[tuple[str, bool]]:
    """(string, is it complete) of the RL code, with `<>` for what an f-string fills in."""
    for path in (ROOT / "mmrl").rglob("*.py"):
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


def test_every_metric_of_the_glossary_is_logged_by_the_code() -> None:
    strings = {text for text, _ in logged_strings()}
    unknown = [name for name in glossary() if re.sub(r"<\w+>", "<>", name) not in strings]
    assert len(glossary()) > 20 and not unknown, unknown


def test_every_metric_that_the_code_names_in_full_is_in_the_glossary() -> None:
    named = re.compile(r"(time|perf|clip_ratio|sampling)/[\w/]+")
    names = {text for text, complete in logged_strings() if complete and named.fullmatch(text)}
    assert len(names) > 5 and not names - set(glossary())
