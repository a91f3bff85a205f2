# The same job under the advantages of every library, one stage after the other, to compare their
# curves.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat() |> reward(sum, low = 0)

train stage_00 {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = verl.grpo(norm = false)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_01 {
  model     = stage_00
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = verl.rloo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_02 {
  model     = stage_01
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = verl.rloo_vectorized()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_03 {
  model     = stage_02
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = verl.opo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_04 {
  model     = stage_03
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = verl.reinforce_pp_baseline()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_05 {
  model     = stage_04
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = verl.reinforce_pp()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_06 {
  model     = stage_05
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = verl.grpo_passk()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_07 {
  model     = stage_06
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = verl.gpg()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_08 {
  model     = stage_07
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = trl.grpo(scale_rewards = batch)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_09 {
  model     = stage_08
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = trl.rloo(normalize = true)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_10 {
  model     = stage_09
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = openrlhf.grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_11 {
  model     = stage_10
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = openrlhf.reinforce_pp_baseline()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_12 {
  model     = stage_11
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = openrlhf.reinforce_pp()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_13 {
  model     = stage_12
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = openrlhf.flash_reinforce()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_14 {
  model     = stage_13
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = rllm.legacy_grpo(scope = group)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_15 {
  model     = stage_14
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = rllm.rloo(scope = group)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_16 {
  model     = stage_15
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = rllm.reinforce_pp_baseline(scope = group)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_17 {
  model     = stage_16
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = rllm.prpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_18 {
  model     = stage_17
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = skyrl.grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_19 {
  model     = stage_18
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = skyrl.rloo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_20 {
  model     = stage_19
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = skyrl.maxrl()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_21 {
  model     = stage_20
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = nemo.grpo(leave_one_out = false)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_22 {
  model     = stage_21
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = nemo.reinforce_pp()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_23 {
  model     = stage_22
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = prime.center()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_24 {
  model     = stage_23
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = prime.maxrl()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_25 {
  model     = stage_24
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = openreward.centered_normalized()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_26 {
  model     = stage_25
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = openreward.centered()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_27 {
  model     = stage_26
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = openreward.direct()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_28 {
  model     = stage_27
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = oat.rebn()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_29 {
  model     = stage_28
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = areal.normalize(mean_level = group, std_level = none)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}

train stage_30 {
  model     = stage_29
  env       = guess
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = reinforce_pp(gamma = 0.99)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 3
}
