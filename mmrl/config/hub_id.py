"""What the id of a repository of the Hugging Face hub looks like."""


def is_hub_id(text: str) -> bool:
    """Whether a text has the form of a repository of the Hugging Face hub, `owner/name`."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(text)
    except HFValidationError:
        return False
    return True
