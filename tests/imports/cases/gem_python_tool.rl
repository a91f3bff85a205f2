# A GEM training command (tinker_train.py), imported with `rlc import`.
#
# Not carried over, or worth knowing:
#   - the script saves nothing by itself; rlc saves at the end in any case

model policy {
  # in place of "meta-llama/Llama-3.1-8B-Instruct", which the hosted service no longer trains (since
  # 2026-06-12)
  base      = "Qwen/Qwen3-8B"
  lora_rank = 32  # the script's default
}

# use_mp = false: the script says so of every environment
# concat_chat: every turn is a sequence of its own, as in the script
env math12k = gem("math:Math12K", use_mp = false)
  |> python_tool(reward_use = 0.0, reward_success = 0.0, errors = last_line)
  |> concat_chat()
  |> template(no)

train main {
  model     = policy
  env       = math12k
  batch     = turns(128, parallel = 128)  # batch_size: the script's default
  sampling  = sample(max_tokens = 2048, temperature = 1.0)  # the script samples at 1
  advantage = rebn(gamma = 1.0)  # use_rebn: the script's default
  loss      = importance_sampling()
  optimizer = adam(4e-5, beta1 = 0.9, beta2 = 0.95, eps = 1e-8)  # the script's default
  steps     = 200  # the script's default
}
