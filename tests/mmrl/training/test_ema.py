"""The average of the weights: its formula, and that it is what is saved."""

from pathlib import Path

import torch
from accelerate import Accelerator
from safetensors.torch import load_file

from mmrl.models.image_tokenizers.magvit import MagvitConfig
from mmrl.training.supervised_trainer import SupervisedTrainer
from scripts.miniature.reconstruction import Reconstruction, ReconstructionConfig
from tests.mmrl.supervised_runs import NETWORK, config


def test_a_run_saves_the_average_and_goes_on_with_the_weights(images: Path, tmp_path: Path) -> None:
    options = ReconstructionConfig(
        data=str(images), image_size=8, network=MagvitConfig(**NETWORK), save_dtype="float32"
    )
    objective = Reconstruction(options, seed=0, batch_size=5)
    trainer = SupervisedTrainer(
        config(images, tmp_path, ema_decay=0.15), objective, Accelerator(cpu=True)
    )
    names = dict(trainer.network.named_parameters())
    average = {name: p.detach().clone() for name, p in names.items()}
    for n in range(1, 4):
        trainer.train_step()
        decay = min(0.15, (1 + n) / (10 + n))
        average = {name: decay * average[name] + (1 - decay) * names[name] for name in names}
    trained = {name: p.detach().clone() for name, p in names.items()}
    trainer.save_model(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    for name, value in average.items():
        torch.testing.assert_close(saved[name], value, atol=1e-6, rtol=1e-5)
        assert torch.equal(names[name], trained[name])
    assert any(not torch.equal(saved[name], trained[name]) for name in names)
