"""Images at the size at which a Qwen-VL reads them, by qwen-vl-utils.

A processor, of transformers or of a server, scales every image to sides that are multiples of two
patches, within its own limits. An image that has such a size already passes unchanged, so a judge
sees the same pixels in this process and behind any server, and `max_pixels` limits its tokens.
"""

from PIL import Image

from mmrl.config import check, import_extra
from mmrl.rewards.parsing.images import as_rgb, png_url


class QwenImages:
    """Encodes images as data URLs.

    Args:
        min_pixels: smaller images are scaled up; 0 is four tokens.
        max_pixels: larger ones are scaled down.
        patch_size: of the model.

    Raises:
        ConfigError: qwen-vl-utils is missing, or limits between which no image fits.
    """

    def __init__(self, min_pixels: int, max_pixels: int, patch_size: int) -> None:
        self._fetch = import_extra("qwen_vl_utils", "judge").fetch_image
        token = (2 * patch_size) ** 2
        check(patch_size >= 1, "judge.patch_size", patch_size, "at least 1")
        least = min_pixels or 4 * token
        allowed = f"at most judge.max_pixels ({max_pixels}), which is at least {4 * token}"
        check(4 * token <= max_pixels >= least >= 0, "judge.min_pixels", min_pixels, allowed)
        self.limits = {"min_pixels": least, "max_pixels": max_pixels}
        self.patch_size = patch_size

    def __call__(self, image: Image.Image) -> str:
        """An image as PNG in a data URL.

        Raises:
            ValueError: one side is more than 200 times the other.
        """
        shown = {"image": as_rgb(image), **self.limits}
        return png_url(self._fetch(shown, image_patch_size=self.patch_size))
