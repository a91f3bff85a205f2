# Online DPO: a model makes its own preferences. Of four replies to a task the best and the worst are a
# pair, what ties is passed over; the second round asks what the first one has left. About half a minute.

param learning_rate: float = 1e-3

model policy {
  base      = "tiny"
  lora_rank = 8
}

env spell = gem("rg:spell_backward")
  |> chat(instruction = "Put your answer inside \\boxed{}.")
  |> rollouts(max_tokens = 16)

preference first {
  model     = policy
  data      = preferred(policy, env = spell, n = 64, samples = 4)
  loss      = dpo(beta = 0.1)
  optimizer = adam(learning_rate)
  batch     = 16
  epochs    = 2
}

preference second = first {
  model = first
  data  = preferred(first, env = spell, n = 64, samples = 4)
}

eval heldout {
  model    = second
  env      = spell
  tasks    = 64
  sampling = sample(max_tokens = 16)
}

expect heldout.mean_reward >= 70%

# `rlc test` runs these.
test the_word_backward_counts {
  env    = spell
  expect = [
    contains(prompt, "backward (example: sun -> nus): unlustily"),
    contains(prompt, "\\boxed{}"),
    reward("\\boxed{ylitsulnu}") == 1,
    reward("\\boxed{unlustily}") < 0.5,
    reward("") == 0,
    turns("\\boxed{ylitsulnu}") == 1,
  ]
}

test the_plan {
  expect = [
    first.steps == 8,
    first.epochs == 2,
    first.batch == 16,
    first.loss.name == "dpo",
    first.data.env.id == "rg:spell_backward",
    first.data.env.rollouts.group == 4,
    first.data.env.rollouts.max_tokens == 16,
    first.data.count == 64,
    first.data.model.model.base == "tiny",
    first.data.model.model.lora_rank == 8,
    first.data.samples == 4,
    first.loss.config.beta == 0.1,
    second.steps == 8,
    second.epochs == 2,
    second.batch == 16,
    second.loss.name == "dpo",
    second.data.env.id == "rg:spell_backward",
    second.data.env.rollouts.group == 4,
    second.data.env.rollouts.max_tokens == 16,
    second.data.count == 64,
    second.data.model.model.base == "tiny",
    second.data.model.model.lora_rank == 8,
    second.data.samples == 4,
    second.loss.config.beta == 0.1,
    heldout.tasks == 64,
  ]
}
