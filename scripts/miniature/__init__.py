"""Training of the CLIP, the image tokenizer and the autoencoder of the miniature checkpoints.

Objectives of `python -m mmrl.sft`, named in `configs/sft/shapes_clip.yaml`, `shapes_vq.yaml` and
`shapes_vae.yaml`; also an example of objectives that are not part of the package.
"""

from mmrl.objectives import ObjectiveEntry
from scripts.miniature.autoencoder_config import AutoencoderConfig
from scripts.miniature.contrastive_config import ContrastiveConfig
from scripts.miniature.reconstruction_config import ReconstructionConfig

CLIP = ObjectiveEntry(ContrastiveConfig, "scripts.miniature.contrastive:Contrastive")
VQ = ObjectiveEntry(ReconstructionConfig, "scripts.miniature.reconstruction:Reconstruction")
VAE = ObjectiveEntry(AutoencoderConfig, "scripts.miniature.autoencoder:Autoencoder")
