"""VQ image tokenizers, one file each: pixels to codes and back."""

IMAGE_TOKENIZERS = {"MAGVITv2": "models.image_tokenizers.magvit:MagvitV2"}
"""`_class_name` of a config.json -> class."""
PUBLIC_KIND = "MAGVITv2"
"""The kind of a tokenizer whose config.json does not say it: showlab/magvitv2."""
