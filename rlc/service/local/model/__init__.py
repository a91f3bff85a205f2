"""The base model, and how tokens go through it.

`base_model` loads one and computes logits; `lora` holds the adapters over it. `packing` lays
sequences that share prefixes out as one stream, and `attention` attends in such a stream.
`kv_cache` holds keys and values of what is being decoded, `prefix_cache` those of before.
"""
