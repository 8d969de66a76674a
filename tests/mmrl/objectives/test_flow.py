"""Flow matching of a pipeline: its loss against the formula, its draws, and what a run trains."""

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.pipelines.stable_diffusion_3.pipeline_stable_diffusion_3 import (
    StableDiffusion3Pipeline,
)
from PIL import Image
from torch import Tensor, nn

from mmrl.config import ConfigError
from mmrl.models import load_policy
from mmrl.models.layouts.pixels import image_to_pixels
from mmrl.models.loading import load_model
from mmrl.models.network.pipeline_parts import PipelineParts
from mmrl.objectives.flow import Flow, draw_sigmas
from mmrl.objectives.options import FlowConfig
from mmrl.planning.sft_plan import describe
from mmrl.randomness import generator
from mmrl.runtime.sharding.loading import read_shards
from mmrl.samplers import SamplerConfig, sample
from mmrl.sft import SFTConfig, main, train
from mmrl.types import Prompt
from tests.by_path import load as load_script
from tests.mmrl.pair import Pair
from tests.mmrl.runs import metrics, same_weights
from tests.mmrl.same_runs import close, equal_metrics
from tests.mmrl.starts import SHAPES
from tests.pictures import add_file, png, write_images

PARTS = ("transformer", "text_encoder", "text_encoder_2", "vae")
load_script(SHAPES, "tokenizer")
pipelines = load_script(SHAPES, "flow_pipeline")
TEXTS = ("a red ring", "a circle and a large blue cross", "two rings", "a square", "a tan cross")
COLORS = ("red", "blue", "tan", "teal", "black")


def write_start(folder: Path) -> str:
    """A pipeline without weights but those of its autoencoder, of 8 x 8 pixels and 4 x 4 latents of
    4 channels."""
    torch.manual_seed(0)
    vae = AutoencoderKL(
        block_out_channels=(4, 4),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=2,
        latent_channels=4,
        mid_block_add_attention=False,
        sample_size=8,
        scaling_factor=1.5,
        shift_factor=0.1,
    )
    vae.save_pretrained(folder / "vae")
    sizes = {"width": 16, "layers": 1, "heads": 2, "length": 12}
    pipelines.write(pipelines.Config(out=str(folder / "start"), vae=str(folder / "vae"), **sizes))
    return str(folder / "start")


def write_pairs(path: Path) -> str:
    """A parquet of five images with their texts."""
    return str(write_images(path, [Image.new("RGB", (8, 8), color) for color in COLORS], TEXTS))


def options(folder: Path, **changes: Any) -> dict[str, Any]:
    """Options of the objective on the pipeline and pairs of a folder; everything is new."""
    usual = {"new_weights": True, "train_text_encoder": True, "max_prompt_length": 2}
    places = {"data": str(folder / "pairs.parquet"), "model": str(folder / "start")}
    return {**places, **usual, "save_dtype": "float32", **changes}


def build(folder: Path, batch_size: int = 4, **changes: Any) -> Flow:
    """The objective."""
    return Flow(FlowConfig(**options(folder, **changes)), seed=0, batch_size=batch_size)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline without weights, and pairs."""
    path = tmp_path_factory.mktemp("flow")
    write_start(path)
    write_pairs(path / "pairs.parquet")
    return path


@pytest.fixture(scope="module")
def finished(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps."""
    return train(config(folder, tmp_path_factory.mktemp("run") / "whole"))


def config(folder: Path, output: Path, **changes: Any) -> SFTConfig:
    """Four steps, a checkpoint every two."""
    objective = {"name": "flow", "eval_data": str(folder / "pairs.parquet"), **options(folder)}
    values = {
        "max_steps": 4,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_steps": 2,
        "eval_steps": 2,
        "ema_decay": 0.9,
        "bf16": False,
    }
    objective |= changes.pop("objective", {})
    return SFTConfig(output_dir=str(output), objective=objective, **{**values, **changes})


class Hand(nn.Module):
    """A network whose velocity is 2 x + 3 sigma, whatever the text."""

    def forward(self, latents: Tensor, sigma: Tensor, **_: Any) -> Tensor:
        return 2 * latents + 3 * sigma[:, None, None, None]


def test_the_loss_is_that_of_the_formula_on_latents_of_diffusers(folder: Path) -> None:
    flow = build(folder)
    inputs, velocity = flow.batch(2, 0, 1)
    vae = AutoencoderKL.from_pretrained(folder / "vae")
    known = {}
    for color, text in zip(COLORS, TEXTS, strict=True):
        pixels = image_to_pixels(Image.new("RGB", (8, 8), color), 8)[None]
        with torch.no_grad():
            known[text] = (vae.encode(pixels).latent_dist.mean - 0.1) * 1.5
    pairs = flow.data[""].take(range(8, 12))
    clean = torch.cat([known[pair.text] for pair in pairs])
    noise, sigma = velocity + clean, inputs["sigma"][:, None, None, None]
    x = (1 - sigma) * clean + sigma * noise
    torch.testing.assert_close(inputs["latents"], x)
    flow.module = Hand()
    loss, _ = flow.loss(flow.batch(2, 0, 1))
    expected = ((2 * x + 3 * sigma - (noise - clean)) ** 2).mean()
    assert float(loss) == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("options", [{}, {"logit_mean": 0.5, "logit_std": 1.4}, {"shift": 3.0}])
def test_noise_levels_are_logit_normal_and_shifted(options: dict[str, float]) -> None:
    drawn = draw_sigmas(FlowConfig(data="-", model="-", **options), 0, range(4096)).double()
    shift = options.get("shift", 1.0)
    logits = torch.logit(drawn / (shift - (shift - 1) * drawn))
    assert float(logits.mean()) == pytest.approx(options.get("logit_mean", 0), abs=0.01)
    assert float(logits.std()) == pytest.approx(options.get("logit_std", 1), rel=0.01)


def test_noise_levels_of_a_few_neighbours_are_spread_evenly() -> None:
    even = FlowConfig(data="-", model="-", sigmas="uniform")
    for first in (0, 1000):
        drawn = draw_sigmas(even, 1, range(first, first + 32)).sort().values
        assert float((drawn - (torch.arange(32) + 0.5) / 32).abs().max()) < 1 / 16


def test_examples_do_not_depend_on_the_number_of_processes(folder: Path) -> None:
    whole = build(folder).batch(3, 0, 1)
    parts = [build(folder, batch_size=2).batch(3, rank, 2) for rank in (0, 1)]
    assert whole.inputs["texts"] == parts[0].inputs["texts"] + parts[1].inputs["texts"]
    for key in ("latents", "sigma"):
        assert torch.equal(whole.inputs[key], torch.cat([each.inputs[key] for each in parts])), key
    assert torch.equal(whole.velocity, torch.cat([each.velocity for each in parts]))


def test_a_dropped_text_is_the_empty_one(folder: Path, finished: Path) -> None:
    start = {"model": str(finished / "final"), "new_weights": False, "train_text_encoder": False}
    frozen = build(folder, cond_dropout_prob=1.0, **start)
    inputs = frozen.batch(0, 0, 1).inputs
    empty = frozen.task.encode("")
    for key in ("states", "pooled"):
        assert torch.equal(inputs[key], empty[key].expand_as(inputs[key]))
        assert not torch.equal(frozen.task.encode(TEXTS[0])[key], empty[key])
    flow = build(folder, cond_dropout_prob=0.25)
    texts = [text for step in range(100) for text in flow.batch(step, 0, 1).inputs["texts"]]
    assert 0.2 < texts.count("") / len(texts) < 0.3


def test_texts_encoded_in_the_forward_pass_condition_as_those_encoded_once(
    folder: Path, finished: Path
) -> None:
    start = {"model": str(finished / "final"), "new_weights": False}
    once = build(folder, train_text_encoder=False, **start)
    together = build(folder, **start)
    losses = [flow.loss(flow.batch(1, 0, 1))[0] for flow in (once, together)]
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5)
    losses[1].backward()
    trained = dict(together.module.named_parameters())
    assert all(p.grad is not None for p in trained.values())
    assert {name.partition(".")[0] for name in trained} == {"network", "encoders"}


def test_a_run_trains_network_and_text_encoders_and_saves_a_public_pipeline(
    folder: Path, finished: Path
) -> None:
    flow = build(folder)
    pipeline: Any = StableDiffusion3Pipeline.from_pretrained(
        finished / "final", text_encoder_3=None, tokenizer_3=None
    )
    for name, encoder in flow.whole.encoders.items():  # type: ignore[union-attr]
        now = getattr(pipeline, name).state_dict()
        assert all(not torch.equal(x, now[key]) for key, x in encoder.state_dict().items())
    policy = load_policy(finished / "final", max_prompt_length=2)
    found = policy.layouts["text_to_image"].encode("two rings")  # type: ignore[attr-defined]
    states, _, pooled, _ = pipeline.encode_prompt(
        "two rings", None, None, do_classifier_free_guidance=False, max_sequence_length=2
    )
    assert torch.equal(found["states"], states) and torch.equal(found["pooled"], pooled)
    prompts = [Prompt("0", "text_to_image", "two rings")]
    settings = SamplerConfig(name="ode", steps=2, cfg_scale=1.0)
    rollout = sample(policy, policy.canvas(prompts), settings, generator(0))
    assert policy.decode(rollout.canvas, prompts)[0].size == (8, 8)  # type: ignore[union-attr]


def test_deferred_weights_are_read_with_the_table_of_positions(finished: Path) -> None:
    whole, deferred = (load_model(finished / "final", deferred=each) for each in (False, True))
    read_shards(deferred, torch.device("cpu"))
    found = deferred.state_dict()
    assert all(torch.equal(found[key], x) for key, x in whole.state_dict().items())


def test_impossible_settings_are_refused_before_anything_is_read(
    folder: Path, finished: Path, tmp_path: Path
) -> None:
    for changes, message in (
        ({"new_weights": False, "lora": {"r": 2}}, "objective.lora"),
        ({"image_size": 9}, "multiples of 2"),
    ):
        with pytest.raises((ConfigError, ValueError), match=message):
            describe(config(folder, tmp_path / "run", objective=changes))
    assert "5 pairs" in str(describe(config(folder, tmp_path / "run")))
    with pytest.raises(ConfigError, match="share one copy"):
        Flow(FlowConfig(**options(folder)), seed=0, batch_size=1, deferred=True)


def test_a_resumed_run_averages_its_weights_as_the_uninterrupted_one(
    folder: Path, finished: Path, tmp_path: Path
) -> None:
    second = str(finished / "checkpoints" / "2")
    again = train(config(folder, tmp_path / "again", resume_from_checkpoint=second))
    plain = train(config(folder, tmp_path / "plain", ema_decay=0.0))
    lines = [line for line in metrics(finished) if line["step"] > 2]
    assert [line for line in metrics(again) if line["step"] > 2] == lines
    for part in PARTS[:3]:
        assert same_weights(again / "final" / part, finished / "final" / part)
        assert not same_weights(plain / "final" / part, finished / "final" / part)


@pytest.mark.slow
def test_two_processes_train_as_one(folder: Path, tmp_path: Path, pair: Pair) -> None:
    objective = {"name": "flow", **options(folder)}
    words = [f"objective={json.dumps(objective)}", "max_steps=3", "logging_steps=1", "bf16=false"]
    words += ["optimizer=sgd", "learning_rate=0.05", "ema_decay=0.5", "save_steps=0"]
    one, two = tmp_path / "one", tmp_path / "two"
    pair.begin("mmrl.sft", [*words, f"output_dir={two}", "per_device_train_batch_size=2"])
    assert main([*words, f"output_dir={one}", "per_device_train_batch_size=4"]) == 0
    pair.end()
    equal_metrics(one, two)
    for part in PARTS:
        close(one / "final" / part, two / "final" / part)


PLACES: dict[str, dict[str, str]] = {
    "pairs.parquet": {},
    "shards/*.tar": {"image_column": "png", "text_column": "txt"},
    "captions": {},
    "table": {"text_column": "text"},
    "hub": {},
}
"""Places of the same pairs, and the columns of each; `hub` is a data set as it lies there."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline without weights, one with weights, and pairs in every form."""
    path = tmp_path_factory.mktemp("data")
    write_start(path)
    for name in ("shards", "captions/deep", "table", "hub/data"):
        (path / name).mkdir(parents=True)
    write_pairs(path / "pairs.parquet")
    shutil.copy(path / "pairs.parquet", path / "hub" / "data" / "train-00000-of-00001.parquet")
    for n, (color, text) in enumerate(zip(COLORS, TEXTS, strict=True)):
        image = png(Image.new("RGB", (8, 8), color))
        with tarfile.open(path / "shards" / f"{n // 3}.tar", "a") as archive:
            for ending, held in (("png", image), ("txt", text.encode())):
                add_file(archive, f"{n:03}.{ending}", held)
        beside = path / "captions" / ("deep" if n % 2 else "") / f"{n}.png"
        for file in (beside, path / "table" / f"{n}.png"):
            file.write_bytes(image)
        beside.with_suffix(".txt").write_text(f"{text}\n")
    rows = [{"file_name": f"{n}.png", "text": text} for n, text in enumerate(TEXTS)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (path / "table" / "metadata.jsonl").write_text(lines)
    build(path).save(path / "whole")
    return path


def start(places: Path, **changes: Any) -> dict[str, Any]:
    given = {"model": str(places / "whole"), "new_weights": False, "train_text_encoder": False}
    return {**given, **changes}


def pairs_of(flow: Flow, count: int = 5) -> dict[str, bytes]:
    found = flow.data[""].take(range(count))
    return {pair.text: pair.image.open().tobytes() for pair in found}


SLOW = ("pairs.parquet", "hub")
"""Places whose streams end after five seconds of waiting in `datasets`."""
WAYS = [(place, False) for place in PLACES]
WAYS += [pytest.param(p, True, marks=[pytest.mark.slow] * (p in SLOW)) for p in PLACES]


@pytest.mark.parametrize(("place", "streaming"), WAYS)
def test_pairs_are_the_same_from_everywhere(
    places: Path, place: str, streaming: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    changes = {"data": str(places / place), "streaming": streaming, **PLACES[place]}
    flow = build(places, **start(places, **changes))
    known = pairs_of(build(places, **start(places)))
    assert set(known) == set(TEXTS) and pairs_of(flow) == known
    assert flow.batch(0, 0, 1).velocity.shape == (4, 4, 4, 4)


def test_an_image_without_a_text_is_named(places: Path, tmp_path: Path) -> None:
    bare = Path(shutil.copytree(places / "captions", tmp_path / "captions"))
    (bare / "deep" / "1.txt").unlink()
    with pytest.raises(ConfigError, match=r"1.png' has no '1.txt' beside it"):
        build(places, data=str(bare))
    with pytest.raises(ConfigError, match=r"data.split is 'test'; it must be null"):
        build(places, data=str(places / "captions"), data_split="test")


@pytest.mark.parametrize("lora", [None, {"r": 2}])
def test_a_second_run_encodes_nothing_and_learns_the_same(
    places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lora: Any
) -> None:
    def run(name: str) -> list[dict[str, Any]]:
        options = {"data": str(places / "captions"), "max_prompt_length": 2, "lora": lora}
        options |= {"encodings_dir": str(tmp_path / "store"), **start(places)}
        config = SFTConfig(
            output_dir=str(tmp_path / name),
            objective={"name": "flow", "cond_dropout_prob": 0.5, **options},
            max_steps=6,
            per_device_train_batch_size=4,
            logging_steps=1,
            bf16=False,
        )
        return [{"loss": line.get("loss")} for line in metrics(train(config))]

    first = run("first")
    kept = {path.name for path in (tmp_path / "store").rglob("*.safetensors")}
    assert len(kept) == 5 + 6  # latents, and texts with the empty one

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a part of the pipeline is read")

    monkeypatch.setattr(PipelineParts, "_load", refuse)
    assert run("second") == first
    assert {path.name for path in (tmp_path / "store").rglob("*.safetensors")} == kept


def test_a_latent_is_kept_for_its_image_size_and_autoencoder(places: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"

    def keep(**changes: Any) -> int:
        flow = build(places, **start(places, encodings_dir=str(store), **changes))
        latent = flow._encode(flow.data[""].items[0].image)  # type: ignore[union-attr]
        found = torch.equal(latent, flow._encode(flow.data[""].items[0].image))  # type: ignore[union-attr]
        assert found and latent.dtype == torch.float32
        return len(list(store.rglob("*.safetensors")))

    assert [keep(), keep(), keep(image_size=16)] == [1, 1, 2]
    other = Path(shutil.copytree(places / "whole", tmp_path / "other"))
    [weights] = (other / "vae").glob("*.safetensors")
    weights.write_bytes(weights.read_bytes() + b" ")
    with pytest.raises(ValueError, match="vae|safetensors|cannot be read"):
        keep(model=str(other))  # another autoencoder, and not what is kept
