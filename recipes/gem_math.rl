# Math problems for a base model, with GEM through tinker-cookbook: 64 problems, 16 answers to each.
#
# From GEM's guide to Tinker, cookbook route, example 1:
#
#     python tinker_cookbook_train.py env_id=math:Math12K groups_per_batch=64 group_size=16
#         learning_rate=2e-5 max_tokens=2048 model_name=Qwen/Qwen3-8B-Base
#         env_kwargs_json='{"use_mp": false}'
#
# `rlc import -- python …` makes such a recipe. What the command leaves out is the script's default.

model policy {
  # "Qwen/Qwen3-8B-Base" in the guide: hosted Tinker no longer trains it
  base      = "Qwen/Qwen3.5-9B-Base"
  lora_rank = 32
}

# use_mp = false: GEM would grade in a process pool, which only works in the main process.
env math12k = gem("math:Math12K", use_mp = false)
  |> chat(instruction = "Please reason step by step, and put your final answer within \\boxed{}.")

train main {
  model     = policy
  env       = math12k
  batch     = groups(64, group_size = 16)
  sampling  = sample(max_tokens = 2048, temperature = 1.0)
  advantage = cookbook.center()  # reward less the group's mean
  loss      = importance_sampling()
  optimizer = adam(2e-5, beta1 = 0.9, beta2 = 0.95, eps = 1e-8)
  steps     = 200
  save      = every(25, ttl = 7d)             # no KL penalty, as in the script
  track     = [wandb("gem-tinker-cookbook")]  # where the guide shows its curves
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 200,
    main.batch.count == 64,
    main.batch.size == 16,
    main.sampling.max_tokens == 2_048,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "cookbook.center",
    main.optimizer.learning_rate == 2e-5,
    main.optimizer.beta1 == 0.9,
    main.optimizer.beta2 == 0.95,
    main.optimizer.eps == 1e-8,
    main.model.base == "Qwen/Qwen3.5-9B-Base",
    main.model.lora_rank == 32,
    main.envs.math12k.args.use_mp == false,
    main.save.every == 25,
  ]
}

test what_it_plays {
  expect = [
    main.envs.math12k.id == "math:Math12K",
    main.envs.math12k.rollouts.group == 16,
    main.envs.math12k.rollouts.temperature == 1,
    main.envs.math12k.rollouts.max_tokens == 2_048,
  ]
}
