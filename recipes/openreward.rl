# Two environments of OpenReward in one job, each with its own rollouts and its own reduction of
# rewards: a detective's case with tools, and grade-school math.
#
# From the guide to OpenReward's trainer for Tinker (tinker-config.yaml). Needs OPENREWARD_API_KEY,
# and WANDB_API_KEY for the metrics.

model policy {
  # "Qwen/Qwen3-30B-A3B" in the guide: hosted Tinker no longer trains it
  base      = "Qwen/Qwen3.6-35B-A3B"
  lora_rank = 8
  renderer  = qwen3_5_disable_thinking  # the trainer does not let the model think
}

env whodunit = openreward("GeneralReasoning/WhoDunIt", split = "train", shuffle = true)
  |> rollouts(group_size = 16, temperature = 1.0, max_failures = 2, timeout = 5m)
  |> reward(sum, nonterminal = 0.0)

# Sampled at 0.7 as in the guide. `rlc check` warns: the gradient is that of the model at 1, so the
# ratio of the two enters the loss.
env gsm8k = openreward("MATH/GSM8K", split = "train", shuffle = true)
  |> rollouts(group_size = 8, temperature = 0.7, max_failures = 0, timeout = 5m)
  |> reward(mean)

train main {
  model     = policy
  env       = 1 * whodunit + 1 * gsm8k  # equally often; there, the larger one comes more often
  batch     = groups(32)
  sampling  = sample(max_tokens = 4096, max_episode_tokens = 32_768)
  advantage = openreward.centered_normalized()  # groups of equals are left out
  # `rlc check` warns that the clip never acts: each batch is fresh and used once, here as there.
  loss      = ppo(clip_low = 0.8, clip_high = 1.2)
  optimizer = adam(1e-5, beta1 = 0.9, beta2 = 0.95, eps = 1e-12)  # eps: the SDK's default
  steps     = 100  # the configuration never ends
  save      = every(10)
  on_error  = retry(3) then drop
  track     = [
    wandb("tinker-test", run = "tinker-rl-test-openreward"),
    openreward_rollouts("tinker-rl-test-openreward"),
  ]
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 100,
    main.batch.count == 32,
    main.sampling.max_tokens == 4_096,
    main.loss.name == "ppo",
    main.advantage.name == "openreward.centered_normalized",
    main.loss.config.clip_low_threshold == 0.8,
    main.loss.config.clip_high_threshold == 1.2,
    main.optimizer.learning_rate == 1e-5,
    main.optimizer.beta1 == 0.9,
    main.optimizer.beta2 == 0.95,
    main.optimizer.eps == 1e-12,
    main.model.base == "Qwen/Qwen3.6-35B-A3B",
    main.model.lora_rank == 8,
    main.envs.whodunit.args.split == "train",
    main.envs.whodunit.args.shuffle == true,
    main.envs.whodunit.reward.reduce == "sum",
    main.envs.whodunit.reward.nonterminal == 0,
    main.envs.gsm8k.args.split == "train",
    main.envs.gsm8k.args.shuffle == true,
    main.envs.gsm8k.reward.reduce == "mean",
  ]
}

test what_it_plays {
  expect = [
    main.envs.whodunit.weight == 1,
    main.envs.whodunit.id == "GeneralReasoning/WhoDunIt",
    main.envs.whodunit.rollouts.group == 16,
    main.envs.whodunit.rollouts.temperature == 1,
    main.envs.whodunit.rollouts.max_tokens == 4_096,
    main.envs.whodunit.rollouts.max_failures == 2,
    main.envs.whodunit.rollouts.timeout == 5m,
  ]
}
