"""Optimisers by name: AdamW, SGD, or Muon for matrices of blocks with AdamW for everything else.

AdamW and Muon normalise the update of every direction; that of SGD is proportional to the gradient.
Where a gradient is mostly noise, as a policy gradient from few rollouts is, the update of SGD is
closer to the mean gradient; its learning rate is larger by orders of magnitude.
Muon (https://kellerjordan.github.io/posts/muon/) takes the update of a matrix to its nearest
orthogonal matrix, here scaled to the size of an AdamW update (https://arxiv.org/abs/2502.16982) so
that one learning rate and one weight decay serve both.
bitsandbytes' AdamW keeps moments in blocks of 8 bits (https://arxiv.org/abs/2110.02861).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mmrl.config.checks import import_extra
from mmrl.run_config import RunConfig


def build_optimizers(module: nn.Module, settings: RunConfig) -> list[Optimizer]:
    """Return the optimisers that together train every parameter requiring a gradient.

    Weight decay applies to matrices and convolutions, not to biases and norm scales. Raises
    ValueError: nothing is trainable."""
    trained = [p for p in module.parameters() if p.requires_grad]
    if not trained:
        raise ValueError("The objective has no trainable parameter: every one is frozen.")
    if settings.optimizer == "adamw_8bit":
        return [_build_bnb(module, _groups(trained, settings), settings)]
    if settings.optimizer == "sgd":
        return [torch.optim.SGD(_groups(trained, settings), momentum=settings.momentum)]
    muon = {id(p) for p in hidden_matrices(module)} if settings.optimizer == "muon" else set()
    matrices, rest = ([p for p in trained if (id(p) in muon) == own] for own in (True, False))
    optimizers: list[Optimizer] = []
    if rest:
        fused = all(p.is_cuda for p in rest) or None  # one kernel for many weights
        groups = _groups(rest, settings)
        optimizers.append(torch.optim.AdamW(groups, **_adam_options(settings), fused=fused))
    if matrices:
        groups = _groups(matrices, settings)
        optimizers.append(torch.optim.Muon(groups, adjust_lr_fn="match_rms_adamw"))
    return optimizers


def _build_bnb(module: nn.Module, groups: list[dict[str, Any]], settings: RunConfig) -> Optimizer:
    """An AdamW of bitsandbytes; moments of embeddings are of 32 bits, as its authors advise."""
    library = import_extra("bitsandbytes", "quantization")
    optimizer = library.optim.AdamW8bit(groups, **_adam_options(settings))
    # not the manager of the process, which keeps parameters of other optimisers by their place
    manager = library.optim.GlobalOptimManager
    optimizer.mng = manager.__new__(manager)
    optimizer.mng.initialize()
    embeddings = (layer.weight for layer in module.modules() if isinstance(layer, nn.Embedding))
    optimizer.mng.pid2config = {id(weight): {"optim_bits": 32} for weight in embeddings}
    return optimizer


def hidden_matrices(module: nn.Module) -> list[Tensor]:
    """Weights of linear layers, without output heads: these have as many rows as some embedding has
    entries."""
    entries = {m.num_embeddings for m in module.modules() if isinstance(m, nn.Embedding)}
    linear = [m for m in module.modules() if isinstance(m, nn.Linear)]
    return [m.weight for m in linear if m.out_features not in entries]


def _adam_options(settings: RunConfig) -> dict[str, Any]:
    return {"betas": (settings.adam_beta1, settings.adam_beta2), "eps": settings.adam_epsilon}


def _groups(parameters: Sequence[nn.Parameter], settings: RunConfig) -> list[dict[str, Any]]:
    groups: dict[float, list[nn.Parameter]] = {}
    for parameter in parameters:
        shape = getattr(parameter, "ds_shape", parameter.shape)  # of one that ZeRO-3 divides
        groups.setdefault(settings.weight_decay if len(shape) >= 2 else 0.0, []).append(parameter)
    rate = settings.learning_rate
    return [{"params": p, "lr": rate, "weight_decay": decay} for decay, p in groups.items()]
