# Simple equations from reasoning-gym, with GEM through tinker-cookbook: 64 problems, 8 answers to each.
#
# From GEM's guide to Tinker, cookbook route, example 2:
#
#     python tinker_cookbook_train.py env_id=rg:simple_equations groups_per_batch=64 group_size=8
#         learning_rate=2e-5 max_tokens=2048 model_name=Qwen/Qwen3-8B-Base
#
# Any of GEM's `rg:` environments goes in its place.

model policy {
  # "Qwen/Qwen3-8B-Base" in the guide: hosted Tinker no longer trains it
  base      = "Qwen/Qwen3.5-9B-Base"
  lora_rank = 32
}

# Graded is what stands in \boxed{}, which the question never says: the instruction must.
env equations = gem("rg:simple_equations")
  |> chat(instruction = "Please reason step by step, and put your final answer within \\boxed{}.")

train main {
  model     = policy
  env       = equations
  batch     = groups(64, group_size = 8)
  sampling  = sample(max_tokens = 2048, temperature = 1.0)
  advantage = cookbook.center()  # reward less the group's mean
  loss      = importance_sampling()
  optimizer = adam(2e-5, beta1 = 0.9, beta2 = 0.95, eps = 1e-8)
  steps     = 200
  save      = every(25, ttl = 7d)             # no KL penalty, as in the script
  track     = [wandb("gem-tinker-cookbook")]  # where the guide shows its curves
}

# `rlc test` runs these.
test the_solution_counts {
  env    = equations
  expect = [
    contains(prompt, "Solve for g: 6030*g + 39 = 114609"),
    reward("\\boxed{19}") == 1,
    reward("\\boxed{18}") < 0.5,
    reward("") == 0,
    contains(prompt, "put your final answer within \\boxed{}."),
  ]
}

test the_plan {
  expect = [
    main.steps == 200,
    main.batch.count == 64,
    main.batch.size == 8,
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
    main.save.every == 25,
  ]
}
