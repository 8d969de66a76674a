"""CLIP reward: cosine between image and prompt (Radford et al. 2021, arXiv:2103.00020).

    score = <f(image), g(prompt)>,   both of length one

The score is the raw cosine, about 0.15 to 0.35 for OpenAI's ViT-L/14. Other conventions are a
`scale` of the configuration entry: CLIPScore has 2.5 (Hessel et al. 2021, who also clip at 0),
logits / 30 are 100 / 30. The prompt goes in as it is, without a template, and is cut at the context
length.
"""

from rewards.networks.open_clip_encoder import OpenCLIPReward


class CLIPReward(OpenCLIPReward):
    """Cosine of any open_clip model."""

    name = "clip"
