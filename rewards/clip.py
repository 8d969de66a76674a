"""CLIP reward: cosine between image and prompt (Radford et al. 2021, arXiv:2103.00020).

    score = <f(image), g(prompt)>,   both of length one

The score is the raw cosine, about 0.15 to 0.35 for OpenAI's ViT-L/14. Other conventions are a
`scale` of the configuration entry: 2.5 for CLIPScore (Hessel et al. 2021, who also clip at 0),
100 / 30 for logits / 30. The prompt is used without a template and truncated at the context length.
"""

from rewards.networks.open_clip_encoder import OpenCLIPReward


class CLIPReward(OpenCLIPReward):
    """Cosine of any open_clip model."""

    name = "clip"
