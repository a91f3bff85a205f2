# A GEM training command (tinker_train.py), imported with `rlc import`.
#
# Not carried over, or worth knowing:
#   - the script saves nothing by itself; rlc saves at the end in any case

model policy {
  # in place of "Qwen/Qwen3-8B-Base", which the hosted service no longer trains (since 2026-06-12)
  base      = "Qwen/Qwen3.5-9B-Base"
  lora_rank = 32  # the script's default
}

# env_wrappers, template: the script's default
# use_mp = false: the script says so of every environment
# concat: without effect on a single turn, as in the script
env deepscaler40k = gem("math:DeepScaleR40K", use_mp = false) |> concat() |> template(qwen3_general)

train main {
  model     = policy
  env       = deepscaler40k
  batch     = turns(128, parallel = 128)  # batch_size: the script's default
  sampling  = sample(max_tokens = 8192, temperature = 1.0)  # the script samples at 1
  advantage = rebn(gamma = 0.9)  # gamma, use_rebn: the script's default
  loss      = importance_sampling()
  optimizer = adam(4e-5, beta1 = 0.9, beta2 = 0.95, eps = 1e-8)  # the script's default
  steps     = 200  # the script's default
}
