"""What cannot be served is refused before anything loads."""

import subprocess
import sys
from pathlib import Path

import pytest

from mmrl.config import ConfigError, load_config
from mmrl.rewards import REWARDS, reward_class
from mmrl.rewards.http import read_token
from mmrl.rewards.registry.interface import Described
from mmrl.rewards.server.server_config import ServerConfig

ROOT = Path(__file__).resolve().parents[3]
SHAPES = "rewards=[{name: shapes}]"
ALLOWED = ("prompt", "images", "completion", "video", "metadata")


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "reward_server").glob("*.yaml")))
def test_every_shipped_configuration_loads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    entries = load_config(ServerConfig, [f"config={path}"]).entries()
    assert entries and len(path.read_text().splitlines()) <= 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "rewards is empty"),
        (["rewards=[{name: shaped}]"], "Did you mean 'shapes'"),
        (["rewards=[{name: shapes, modus: strict}]"], "mode"),
        (["rewards=[{name: shapes, max_batch_size: 0}]"], r"rewards\[0\].max_batch_size is 0"),
        (["rewards=[{name: shapes, weight: 2}]"], "configuration of the run"),
        (["rewards=[{name: cycle}]"], r"rewards\[0\].name is 'cycle'.*a server has none.*the run"),
        (["rewards=[{name: shapes}, {name: shapes}]"], r"rewards\[1\].key is 'shapes'"),
        (["rewards=[{name: shapes, key: a/b}]"], "points, dashes and underscores"),
        ([SHAPES, "host=0.0.0.0"], "token_env is ''; .*environment variable.*127.0.0.1"),
        ([SHAPES, "host=gpu-7"], "token_env"),
        ([SHAPES, "limits.max_pixels=100000000000"], "limits.max_pixels"),
        ([SHAPES, "limits.max_memory_mb=10"], "limits.max_memory_mb is 10; it must be at least"),
        ([SHAPES, "timeout_s=0"], "timeout_s"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(ServerConfig, arguments)


def test_the_token_comes_from_the_environment_and_this_machine_alone_needs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        config = load_config(ServerConfig, [SHAPES, f"host={host}"])
        assert read_token(config.token_env, "token_env") == ""
    config = load_config(ServerConfig, [SHAPES, "host=0.0.0.0", "token_env=T"])
    monkeypatch.setenv("T", "abc\n")
    assert read_token(config.token_env, "token_env") == "abc"
    for token in ("", "a b", "schlüssel", "secret\r\nX-Other: 1"):
        monkeypatch.setenv("T", token)
        with pytest.raises(ConfigError, match="token_env is 'T'.*Export it.*openssl") as caught:
            read_token(config.token_env, "token_env")
        assert not token or token not in str(caught.value)
    monkeypatch.delenv("T")
    with pytest.raises(ConfigError, match="token_env is 'T'"):
        read_token(config.token_env, "token_env")


def test_versions_follow_the_options_but_not_the_device() -> None:
    def version(*options: str) -> str:
        entry = ", ".join(["name: clip", "model: ViT-B-32", *options])
        return load_config(ServerConfig, [f"rewards=[{{{entry}}}]"]).entries()[0].version

    assert version() == version("device: cuda") == version("max_batch_size: 8")
    assert version() != version("dtype: bfloat16")


def test_the_version_of_ones_own_reward_follows_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = set()
    for n, text in enumerate(("return [1.0]", "return [2.0]")):
        (tmp_path / str(n)).mkdir()
        monkeypatch.chdir(tmp_path / str(n))
        Path("own.py").write_text(f"def f(samples): {text}")
        (entry,) = load_config(ServerConfig, ["rewards=[{name: own.py:f}]"]).entries()
        assert entry.key == "f"
        versions.add(entry.version)
    assert len(versions) == 2
    for word, named in (("none.py:f", "no file"), ("own.py:g", "has no 'g'")):
        with pytest.raises(ConfigError, match=named):
            load_config(ServerConfig, [f"rewards=[{{name: {word}}}]"])


@pytest.mark.parametrize("name", sorted(REWARDS))
def test_every_reward_says_what_it_needs(name: str) -> None:
    described = reward_class(name)
    assert isinstance(described, Described)
    assert described.needs and set(described.needs) <= set(ALLOWED)


def test_the_command_ends_with_one_line_for_a_wrong_setting_and_loads_on_a_dry_run() -> None:
    command = [sys.executable, "-m", "mmrl.rewards.server"]
    wrong = subprocess.run([*command, "host=0.0.0.0", SHAPES], cwd=ROOT, capture_output=True)
    assert wrong.returncode == 1 and wrong.stderr.startswith(b"error: token_env is ''")
    dry = subprocess.run([*command, SHAPES, "dry_run=true"], cwd=ROOT, capture_output=True)
    assert dry.returncode == 0 and b"max_items: 256" in dry.stdout
