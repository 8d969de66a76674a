"""Training of the CLIP and the image tokenizer of the miniature checkpoints.

Two objectives of `python -m mmrl.sft`, named in `configs/sft/shapes_clip.yaml` and
`configs/sft/shapes_vq.yaml`; also an example of objectives that are not part of the package.
"""

from mmrl.objectives import ObjectiveEntry
from scripts.miniature.contrastive_config import ContrastiveConfig
from scripts.miniature.reconstruction_config import ReconstructionConfig

CLIP = ObjectiveEntry(ContrastiveConfig, "scripts.miniature.contrastive:Contrastive")
VQ = ObjectiveEntry(ReconstructionConfig, "scripts.miniature.reconstruction:Reconstruction")
