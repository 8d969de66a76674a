"""Lumina-DiMOO's kinds of edits: what is said to the network for each (arXiv 2510.06308).

A kind is the `edit_type` of a prompt, such as `edit_add`; the first word below that it contains
decides, as in the public code. Its published kinds `canny_pred`, `hed_pred`, `depth_pred` and
`openpose_pred` contain none of them, and `canny_dense` predicts edges: that is kept.
"""

DEFAULT = "edit"
STYLE_REFERENCE = "image_ref_transfer"
"""The kind with two images, the source and the reference of a style."""
_DENSE = {
    "canny": "canny edge map",
    "hed": "hed edge map",
    "openpose": "pose estimation map",
}
_SYSTEM = {
    "dense": "Perform dense prediction on the given images.",
    "control": "Generate an image according to the text prompt and the given control image.",
    "subject": "Generate an image according to the text prompt and the given object image.",
    "edit": "Generate an image applying the following editing instruction based on the original"
    " image.",
    "ref_transfer": "Transform the current image into the style of the provided image.",
    "multi_view": "Generate a view-image based on the given image.",
}
_OTHER = "Generate an image according to the prompt and image."


def word_edit(text: str, kind: str = DEFAULT) -> tuple[str, str]:
    """What the public code says of an edit: the message of the system, and that of the user.

    Args:
        text: the instruction; those of `dense`, `ref_transfer` and `multi_view` are fixed.
        kind: `edit_type`.
    """
    name = next((name for name in _SYSTEM if name in kind), "")
    parts = kind.split("_")
    own = {
        "dense": f"Generate a {_DENSE.get(parts[0], f'{parts[0]} map')} according to the image.",
        "ref_transfer": _SYSTEM["ref_transfer"],
        "multi_view": f"Generate the {parts[-1]} view based on the provided front view.",
    }
    return _SYSTEM.get(name, _OTHER), own.get(name, text)
