"""Names of the tasks that prompts carry and families of checkpoints have layouts for."""

WRITES_IMAGES = {
    "image_edit": True,
    "image_to_text": False,
    "text": False,
    "text_to_image": True,
}
"""Task -> whether its completions are images, rather than text."""
EDITS = ("image_edit",)
"""Tasks whose prompts have a source image, which the completion changes."""
TASKS = sorted(WRITES_IMAGES)


def writes_images(task: str) -> bool:
    """Whether completions of a task are images."""
    return WRITES_IMAGES.get(task, False)
