"""Names of the tasks that prompts carry and families of checkpoints have layouts for."""

TEXTS, IMAGES, VIDEOS = "texts", "images", "videos"
COMPLETIONS = {
    "image_edit": IMAGES,
    "image_to_text": TEXTS,
    "image_to_video": VIDEOS,
    "text": TEXTS,
    "text_to_image": IMAGES,
    "text_to_video": VIDEOS,
}
"""Task -> what its completions are."""
EDITS = ("image_edit",)
"""Tasks whose prompts have a source image, which the completion changes."""
FROM_IMAGE = (*EDITS, "image_to_video")
"""Tasks whose prompts have an image without which there is no completion."""
TASKS = sorted(COMPLETIONS)


def completions_of(task: str) -> str:
    """What completions of a task are."""
    return COMPLETIONS.get(task, TEXTS)


def writes_images(task: str) -> bool:
    """Whether completions of a task are pixels: an image, or a video of many."""
    return completions_of(task) != TEXTS
