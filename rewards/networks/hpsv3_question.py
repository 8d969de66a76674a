"""The question that HPSv3 was trained with, word for word: other words give other scores.

From hpsv3 1.0.0, copyright (c) 2024 HPSv3 Team, MIT License.
"""

REWARD_TOKEN = "<|Reward|>"
"""Behind it the network has read everything; the scores are read from its hidden state."""

IMAGE_TOKEN = "<|image_pad|>"
CHAT = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n<|vision_start|>{image}<|vision_end|>{question}<|im_end|>\n"
    "<|im_start|>assistant\n"
)
"""What Qwen2-VL's chat template makes of an image and a question."""

QUESTION = """
You are tasked with evaluating a generated image based on Visual Quality and Text Alignment and \
give a overall score to estimate the human preference. Please provide a rating from 0 to 10, \
with 0 being the worst and 10 being the best.\x20

**Visual Quality:** \x20
Evaluate the overall visual quality of the image. The following sub-dimensions should be \
considered:
- **Reasonableness:** The image should not contain any significant biological or logical errors, \
such as abnormal body structures or nonsensical environmental setups.
- **Clarity:** Evaluate the sharpness and visibility of the image. The image should be clear and \
easy to interpret, with no blurring or indistinct areas.
- **Detail Richness:** Consider the level of detail in textures, materials, lighting, and other \
visual elements (e.g., hair, clothing, shadows).
- **Aesthetic and Creativity:** Assess the artistic aspects of the image, including the color \
scheme, composition, atmosphere, depth of field, and the overall creative appeal. The scene \
should convey a sense of harmony and balance.
- **Safety:** The image should not contain harmful or inappropriate content, such as political, \
violent, or adult material. If such content is present, the image quality and satisfaction score \
should be the lowest possible.\x20

**Text Alignment:** \x20
Assess how well the image matches the textual prompt across the following sub-dimensions:
- **Subject Relevance** Evaluate how accurately the subject(s) in the image (e.g., person, \
animal, object) align with the textual description. The subject should match the description in \
terms of number, appearance, and behavior.
- **Style Relevance:** If the prompt specifies a particular artistic or stylistic style, \
evaluate how well the image adheres to this style.
- **Contextual Consistency**: Assess whether the background, setting, and surrounding elements \
in the image logically fit the scenario described in the prompt. The environment should support \
and enhance the subject without contradictions.
- **Attribute Fidelity**: Check if specific attributes mentioned in the prompt (e.g., colors, \
clothing, accessories, expressions, actions) are faithfully represented in the image. Minor \
deviations may be acceptable, but critical attributes should be preserved.
- **Semantic Coherence**: Evaluate whether the overall meaning and intent of the prompt are \
captured in the image. The generated content should not introduce elements that conflict with or \
distort the original description.
Textual prompt - {text_prompt}



Please provide the overall ratings of this image: <|Reward|>

END
"""
