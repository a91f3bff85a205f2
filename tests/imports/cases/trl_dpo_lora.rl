# A job of TRL (as in 1.16), imported with `rlc import`.
#
# Not carried over, or worth knowing:
#   - no place here: output_dir=Qwen2-0.5B-DPO, remove_unused_columns=false
#   - the service has its own adapters, their scale and their precision: lora_alpha=16

model policy {
  # the catalogue does not know it: choose one of `rlc models`, or keep it on a server of yours,
  # with `service = tinker` and a `renderer`
  base      = "Qwen/Qwen2-0.5B-Instruct"
  lora_rank = 32
}

preference main {
  model     = policy
  batch     = 16
  # longer rows are cut there after 1024 tokens, and left out here
  data      = pairs("hub:trl-lib/ultrafeedback_binarized", max_tokens = 1024, too_long = drop)
  # lr_scheduler_type: the trainer's default
  optimizer = adam(
    5e-6,
    beta1 = 0.9,
    beta2 = 0.999,
    eps = 1e-8,
    weight_decay = 0.0,
    grad_clip_norm = 1.0,
    schedule = linear(),
  )
  steps     = 1000
  save      = every(500)
  heldout   = pairs(
    "hub:trl-lib/ultrafeedback_binarized",
    max_tokens = 1024,
    too_long = drop,
    split = test,
  )
  every     = 50
  loss      = dpo(beta = 0.1)  # the trainer's default
}
