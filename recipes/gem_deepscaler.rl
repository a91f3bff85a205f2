# Hard math with long answers: REINFORCE with return batch normalisation on single answers, no groups.
# The guide shows answers growing longer in this run, as in DeepSeek-R1-Zero.
#
# From GEM's guide to Tinker, low-level route, example 1:
#
#     python tinker_train.py model_name=Qwen/Qwen3-8B-Base env_id=math:DeepScaleR40K num_env=128
#         max_tokens=8192

model policy {
  # "Qwen/Qwen3-8B-Base" in the guide: hosted Tinker no longer trains it
  base      = "Qwen/Qwen3.5-9B-Base"
  lora_rank = 32
}

# The script's defaults. `rlc check` warns that concat() changes nothing here, and it is right: an
# answer is the only turn. It stays, so that the recipe is the script's job to the letter.
env deepscaler = gem("math:DeepScaleR40K", use_mp = false) |> concat() |> template(qwen3_general)

train main {
  model     = policy
  env       = deepscaler
  batch     = turns(128, parallel = 128)
  sampling  = sample(max_tokens = 8192, temperature = 1.0)
  advantage = rebn(gamma = 0.9)  # with one turn an episode, gamma has nothing to discount
  loss      = importance_sampling()
  optimizer = adam(4e-5, beta1 = 0.9, beta2 = 0.95, eps = 1e-8)
  steps     = 200  # the script saves nothing on the way; rlc saves at the end
  track     = [wandb("gem-tinker_train")]  # where the guide shows its curves
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 200,
    main.batch.count == 128,
    main.batch.parallel == 128,
    main.sampling.max_tokens == 8_192,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "rebn",
    main.advantage.args.gamma == 0.9,
    main.optimizer.learning_rate == 4e-5,
    main.optimizer.beta1 == 0.9,
    main.optimizer.beta2 == 0.95,
    main.optimizer.eps == 1e-8,
    main.model.base == "Qwen/Qwen3.5-9B-Base",
    main.model.lora_rank == 32,
    main.envs.deepscaler.args.use_mp == false,
  ]
}

test what_it_plays {
  expect = [
    main.envs.deepscaler.id == "math:DeepScaleR40K",
    main.envs.deepscaler.rollouts.temperature == 1,
    main.envs.deepscaler.rollouts.max_tokens == 8_192,
  ]
}
