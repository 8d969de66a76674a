"""Training of a CLIP on pairs of image and caption, in open_clip's format.

    loss = (CE(s f g^T) + CE(s g f^T)) / 2

over the batch, with f, g the normalised features and s the learned scale (arXiv:2103.00020,
section 2.3). Two deviations. Captions that ask for the same thing are not negatives of each other:
their entries are left out of the softmax. And each caption may be joined by copies with one word
exchanged, which are negatives for its image only (arXiv:2210.01936); without them a CLIP learns
which things a picture shows but hardly what belongs to which. Under several processes the negatives
are those of the own process.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from mmrl.config import ConfigError, check
from mmrl.objectives.captions import CaptionTokenizer, exchange_word, same_request
from mmrl.objectives.images import image_to_pixels, load_images
from mmrl.objectives.stream import stream_positions, stream_rows
from mmrl.randomness import generator_for
