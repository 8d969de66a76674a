"""Help: what every entry point says of itself, and that no question for it waits for torch."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mmrl.config.help import Usage, about, texts
from mmrl.config.setting_docs import settings, walk
from mmrl.config.yaml_file import shipped
from mmrl.evaluation.eval_config import EvalConfig
from mmrl.rewards.server.server_config import ServerConfig
from mmrl.rl_config import RLConfig
from mmrl.sft_config import SFTConfig

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = ("mmrl.rl", "mmrl.sft", "mmrl.eval", "mmrl.eval_v", "mmrl.rewards.server.__main__")
COMMANDS += ("mmrl.probe", "mmrl.engines.server")
SCRIPTS = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("scripts/*.py", "scripts/bench/*.py", "datasets/*/*.py")
    for path in ROOT.glob(pattern)
    if '\nif __name__ == "__main__"' in path.read_text(encoding="utf-8")
)
RL = Usage("python -m mmrl.rl", "", RLConfig, "rl")
QUICKSTART = "config=configs/rl/quickstart.yaml"
MISSPELT = {
    "learning_rat=1": "learning_rate",
    "confg=configs/rl/quickstart.yaml": "config",
    "config=configs/rl/quickstrat.yaml": "configs/rl/quickstart.yaml",
    "configs/rl/quickstart.yaml": "config=configs/rl/quickstart.yaml",
    f"{QUICKSTART} tasks.shapes.sampler.stepz=3": "steps",
    f"{QUICKSTART} tasks.shapes.sampler.name=emrge": "emerge",
    f"{QUICKSTART} tasks.shapes.rewards=[{{name: shaps}}]": "shapes",
    f"{QUICKSTART} tasks.shapes.rewards=[{{name: clip, pretraind: x}}]": "pretrained",
}
"""Words of `mmrl.rl`, and what is suggested."""

ANSWERS = """
import contextlib, io, json, os, runpy, sys

def answer(run, words):
    out, err = io.StringIO(), io.StringIO()
    sys.argv[1:] = words
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run()
            status = 0
        except SystemExit as end:
            status = end.code
    heavy = sorted({"torch", "transformers"} & {*sys.modules})
    return [status, out.getvalue(), err.getvalue(), heavy]

found = {}
sys.path.insert(0, "")
for kind, name, *words in json.load(sys.stdin):
    sys.argv[0], sys.path[0] = name, os.path.dirname(name)
    key = " ".join([name, *words])
    if kind == "path":
        found[key] = answer(lambda: runpy.run_path(name, run_name="__main__"), words)
    else:
        found[key] = answer(lambda: runpy.run_module(name, None, "__main__", True), words)
json.dump(found, sys.stdout)
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, list[Any]]:
    """Status, output, errors and heavy modules of all calls, made in one process one by one."""
    calls: list[list[str]] = [["module", "mmrl"]]
    calls += [["path", script, *words] for script in SCRIPTS for words in (["--help"], [])]
    calls += [["module", name, "-h"] for name in COMMANDS]
    calls += [["module", "mmrl.rl", "--help", "tasks.rewards"]]
    calls += [["module", "mmrl.rl", *words.split(" ", 1)] for words in MISSPELT]
    ran = subprocess.run(
        [sys.executable, "-c", ANSWERS],
        input=json.dumps(calls),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return json.loads(ran.stdout)


def test_no_question_for_help_and_no_misspelt_word_waits_for_torch(answers: dict) -> None:
    assert {key: heavy for key, (*_, heavy) in answers.items() if heavy} == {}


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_and_generator_says_what_it_does_with_an_example_and_its_settings(
    script: str, answers: dict[str, list[Any]]
) -> None:
    status, said, _, _ = answers[f"{script} --help"]
    assert status == 0 and f"    python {script}" in said and "\nsettings" in said
    assert [answers[script][0], answers[script][1]] == [2, said]


def test_the_commands_are_listed_with_a_line_each(answers: dict[str, list[Any]]) -> None:
    status, said, _, _ = answers["mmrl"]
    assert status == 0
    for name in COMMANDS:
        words = f"python -m {name.removesuffix('.__main__')} "
        [line] = [line for line in said.splitlines() if words in line]
        assert len(line.split(words)[1].split()) >= 3, line


@pytest.mark.parametrize(("words", "meant"), MISSPELT.items())
def test_a_misspelt_word_is_answered_with_the_nearest_one(
    words: str, meant: str, answers: dict[str, list[Any]]
) -> None:
    status, _, error, _ = answers[f"mmrl.rl {words}"]
    assert status == 1 and error.startswith("error: ")
    assert f"Did you mean {meant!r}?" in error or f"Did you mean {meant}?" in error


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_what_a_command_does_an_example_its_configurations_and_all_settings(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    module = importlib.import_module(name)
    assert module.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert module.main([]) == 2 and capsys.readouterr().out == said
    assert said.startswith((module.__doc__ or "-").splitlines()[0])
    assert f"\n    {module.USAGE.command} config=configs/" in said
    configurations = shipped(module.USAGE.folder)
    assert configurations and all(f"  {path.relative_to(ROOT)} " in said for path in configurations)
    config = module.USAGE.config
    kinds = [config] if isinstance(config, type) else list(config.values())
    for row in (row for kind in kinds for row in settings(kind)):
        assert f"\n  {row.key} " in said
        assert row.meaning in " ".join(said.split()) or len(kinds) > 1


@pytest.mark.parametrize("config", [RLConfig, SFTConfig, EvalConfig, ServerConfig])
def test_every_setting_has_a_meaning(config: type) -> None:
    rows = list(walk(config))
    assert len(rows) > 80 and not [row.key for row in rows if not row.meaning]


def test_a_section_is_shown_with_types_defaults_and_allowed_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    said = about(RL, "tasks.sampler")
    assert said is not None and said == about(RL, "tasks.shapes.sampler")
    lines = [" ".join(line.split()) for line in said.splitlines()]
    kinds = (
        "left_to_right | lumina | maskgit | maskgit_plus | ode | origin | sglang | static |"
        " topk_margin | vllm ="
    )
    assert kinds in " ".join(lines)
    for line in (
        "steps int (at least 1) = 12",
        "block_size int | str | null (prompt or at least 1) = null",
        "cache none | prefix | dual | refresh = none",
    ):
        assert line in lines
    assert "Denoising steps S, over all blocks." in said


def test_components_are_listed_and_each_shows_its_own_options() -> None:
    rewards = about(RL, "tasks.rewards") or ""
    assert re.search(r"\n  clip +Cosine of any open_clip model\.\n", rewards)
    clip = about(RL, "tasks.shapes.rewards[0].clip") or ""
    assert "dtype                       float32 | bfloat16 | float16 = float32" in clip
    methods = about(RL, "tasks.algorithm") or ""
    assert (
        "\n  wd1  " in methods
        and "\n  num_slices                  int | null (at least 1)" in methods
    )
    sft = Usage("python -m mmrl.sft", "", SFTConfig, "sft")
    masking = about(sft, "objective.text.corruption") or ""
    assert "\n  semi_ar        Hide tokens of one block, and all later blocks." in masking


def test_settings_are_found_by_a_part_of_their_name_and_others_by_what_is_near() -> None:
    found = (line for line in (about(RL, "mask_rate") or "").splitlines() if line[0] != " ")
    keys = [line.split()[0].removeprefix("tasks.<name>.algorithm.") for line in found]
    assert sorted(keys) == ["max_mask_rate", "min_mask_rate", "prompt_mask_rate"]
    [(said, known)] = texts(RL, ["mask_ratee"])
    assert not known and "Did you mean 'tasks.<name>.algorithm.min_mask_rate'?" in said
