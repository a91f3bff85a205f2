# Math with a Python tool: the model may run code up to five times before it answers.
#
# From GEM's guide to Tinker, low-level route, example 2:
#
#     python tinker_train.py env_id=math:Math12K num_env=128 max_tokens=2048 template=no
#         model_name=meta-llama/Llama-3.1-8B-Instruct gamma=1
#         env_wrappers=python_tool_no_int_reward_last_line_error,concat_chat

model policy {
  # "meta-llama/Llama-3.1-8B-Instruct" in the guide: hosted Tinker no longer trains it
  base      = "Qwen/Qwen3-8B"
  lora_rank = 32
}

# Only the answer is rewarded, not the use of the tool; of an error the model sees the last line.
# Each prompt begins with the tokens that were sampled before, thinking included, so an episode is
# one sequence. The guide's `concat_chat() |> template(no)` writes each turn as one of its own.
env math_with_python = gem("math:Math12K", use_mp = false)
  |> python_tool(timeout = 5s, uses = 5, reward_use = 0.0, reward_success = 0.0, errors = last_line)
  |> chat(history = sampled)

train main {
  model     = policy
  env       = math_with_python
  batch     = turns(128, parallel = 128)
  sampling  = sample(max_tokens = 2048, temperature = 1.0)
  advantage = rebn(gamma = 1.0)
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
    main.sampling.max_tokens == 2_048,
    main.sampling.temperature == 1,
    main.loss.name == "importance_sampling",
    main.advantage.name == "rebn",
    main.advantage.args.gamma == 1,
    main.optimizer.learning_rate == 4e-5,
    main.optimizer.beta1 == 0.9,
    main.optimizer.beta2 == 0.95,
    main.optimizer.eps == 1e-8,
    main.model.base == "Qwen/Qwen3-8B",
    main.model.lora_rank == 32,
    main.envs.math_with_python.args.use_mp == false,
  ]
}

test what_it_plays {
  expect = [
    main.envs.math_with_python.id == "math:Math12K",
    main.envs.math_with_python.wrappers.python_tool.args.timeout == 5s,
    main.envs.math_with_python.wrappers.python_tool.args.uses == 5,
    main.envs.math_with_python.wrappers.python_tool.args.reward_use == 0,
    main.envs.math_with_python.wrappers.python_tool.args.reward_success == 0,
    main.envs.math_with_python.wrappers.python_tool.args.errors == "last_line",
    main.envs.math_with_python.rollouts.temperature == 1,
  ]
}
