# A job of TRL (as in 1.16), imported with `rlc import`.
#
# Not carried over, or worth knowing:
#   - assistant_only_loss = false: of chats TRL learns the user's messages too
#   - `chats` reads `messages` or `conversations`; for `prompt` and `completion` write rows(…, reply
#     = "completion")
#   - max_grad_norm = 1: a limit for the mean over tokens; here the gradient is of their sum, so
#     there is none
#   - no place here: output_dir=Qwen2-0.5B-SFT, push_to_hub=true
#   - changes what is learnt, and has no words here: packing=true, eos_token=<|im_end|>
#   - the service has its own adapters, their scale and their precision: lora_alpha=16

model policy {
  # the catalogue does not know it: choose one of `rlc models`, or keep it on a server of yours,
  # with `service = tinker` and a `renderer`
  base      = "Qwen/Qwen2-0.5B"
  lora_rank = 32
}

sft main {
  model     = policy
  batch     = 16
  # longer rows are cut there after 1024 tokens, and left out here
  data      = chats("hub:trl-lib/Capybara", max_tokens = 1024, too_long = drop)
  # lr_scheduler_type: the trainer's default
  optimizer = adam(
    0.0002,
    beta1 = 0.9,
    beta2 = 0.999,
    eps = 1e-8,
    weight_decay = 0.0,
    schedule = linear(),
  )
  steps     = 100  # there 1 × rows / 16: rows are not counted here
  heldout   = chats("hub:trl-lib/Capybara", max_tokens = 1024, too_long = drop, split = test)
  every     = 100
}
