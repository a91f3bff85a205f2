"""The base model: attention, packing, LoRA, caches."""
