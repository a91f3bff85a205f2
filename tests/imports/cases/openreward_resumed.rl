# An OpenReward configuration for Tinker, imported with `rlc import`.
#
# Not carried over, or worth knowing:
#   - log_path = /tmp/tinker-rl: a run writes to a folder of its own (`rlc run --run-dir`)

model policy {
  # in place of "Qwen/Qwen3-30B-A3B", which the hosted service no longer trains (since 2026-06-12)
  base      = "Qwen/Qwen3.6-35B-A3B"
  lora_rank = 8
  # the trainer starts its steps anew; a state of "Qwen/Qwen3-30B-A3B", which fits no other model:
  # remove it, or give one that fits
  weights   = state("tinker://run-id/weights/checkpoint_000050")
  renderer  = qwen3_5_disable_thinking  # thinking: false
}

# rollout_timeout: the trainer's default
env whodunit = openreward("GeneralReasoning/WhoDunIt", split = "train", shuffle = true)
  |> rollouts(group_size = 16, temperature = 1.0, max_failures = 2, timeout = 300s)
  |> reward(sum, nonterminal = 0.0)

# max_failing_rollouts, rollout_timeout: the trainer's default
# temperature 0.7, as in the original: these rollouts come from another distribution than is trained
env gsm8k = openreward("MATH/GSM8K", split = "train", shuffle = true)
  |> rollouts(group_size = 8, temperature = 0.7, max_failures = 0, timeout = 300s)
  |> reward(mean)

train main {
  model     = policy
  # the trainer samples from the union of all tasks, so the environment with more of them comes more
  # often; here they come equally often, until you weigh them (3 * a + 1 * b)
  env       = whodunit + gsm8k
  batch     = groups(32)
  # max_response_tokens, max_total_tokens: the trainer's default
  sampling  = sample(max_tokens = 4096, max_episode_tokens = 32_768)
  # the trainer's default; groups of equals are left out
  advantage = openreward.centered_normalized()
  # clip range: the service's default; each batch is fresh and used once, so the clip never acts
  loss      = ppo(clip_low = 0.8, clip_high = 1.2)
  # betas and eps: the SDK's defaults
  optimizer = adam(1e-5, beta1 = 0.9, beta2 = 0.95, eps = 1e-12, weight_decay = 0.0)
  # the original never ends (num_epochs: null); a recipe does, so choose how long
  steps     = 100
  save      = every(10)           # the trainer keeps all, rlc the newest 3
  on_error  = retry(3) then drop  # the trainer's default
  track     = [
    wandb("tinker-test", run = "tinker-rl-test-openreward"),
    openreward_rollouts("tinker-rl-test-openreward"),
  ]
}
