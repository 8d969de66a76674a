"""Records that sampler, rewards, estimators and training loop exchange.

Shape legend, used in every docstring: B rollouts (= P prompts x G generations), N actions of a
rollout (for rows of tokens the L positions of a row), n response positions, C columns of the
response vocabulary, K passes, S denoising steps, D width.
"""

from mmrl.types.canvas import Canvas
from mmrl.types.passes import Gaussian, Passes, Prediction, Query, Scores
from mmrl.types.rollout import Rollout
from mmrl.types.samples import Chunk, Completion, Cutting, Prompt, Sample
from mmrl.types.video import Video
