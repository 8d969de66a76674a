"""VQ image tokenizers, one file each: pixels to codes and back."""

IMAGE_TOKENIZERS = {
    "MAGVITv2": "mmrl.models.image_tokenizers.magvit:MagvitV2",
    "VQModel": "mmrl.models.image_tokenizers.vq_model:VQModel",
}
"""`_class_name` of a config.json -> class."""
PUBLIC_KIND = "MAGVITv2"
"""The kind of a tokenizer whose config.json does not say it: showlab/magvitv2."""
PUBLIC_VQ = "showlab/magvitv2"
"""The published tokenizer of that kind, for checkpoints that neither name nor hold one."""
OWN_VQ = "auto"
"""In place of a path or hub id: what the checkpoint names or holds, else `PUBLIC_VQ`."""
SUBFOLDER = "vqvae"
"""Where a checkpoint in diffusers' layout has its own image tokenizer."""
