# A job of TRL (as in 1.16), imported with `rlc import`.
#
# Not carried over, or worth knowing:
#   - in Python code only, which is not run: output_dir = f'{model_id}-codeforces-SFT'
#   - assistant_only_loss = false: of chats TRL learns the user's messages too
#   - `chats` reads `messages` or `conversations`; for `prompt` and `completion` write rows(…, reply
#     = "completion")
#   - max_grad_norm = 1: a limit for the mean over tokens; here the gradient is of their sum, so
#     there is none
#   - no place here: use_liger_kernel=true, dataset_num_proc=32
#   - the service has its own adapters, their scale and their precision: bf16=true

model policy {
  # the catalogue does not know it: choose one of `rlc models`, or keep it on a server of yours,
  # with `service = tinker` and a `renderer`
  base      = "google/gemma-3-12b-it"
  # all weights are trained there; here an adapter is, which takes about ten times the rate
  lora_rank = 32
}

sft main {
  model     = policy
  batch     = 8
  # longer rows are cut there after 8192 tokens, and left out here
  data      = chats("hub:open-r1/codeforces-cots", max_tokens = 8192, too_long = drop)
  # learning_rate, lr_scheduler_type: the trainer's default
  optimizer = adam(
    2e-5,
    beta1 = 0.9,
    beta2 = 0.999,
    eps = 1e-8,
    weight_decay = 0.0,
    schedule = linear(),
  )
  steps     = 100  # there 1 × rows / 8: rows are not counted here
}
