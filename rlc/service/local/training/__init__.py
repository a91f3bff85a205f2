"""Training: forward and backward passes (`trainer`) of the losses of the Tinker API (`losses`),
AdamW (`optimizer`), and both as a checkpoint (`state`)."""
