model policy {
  base      = "tiny"
  lora_rank = 8
}

model big {
  base      = "tiny"
  lora_rank = 16
}

judge helpful = rubric("Does it help?", model = big)
env duel = problems(countdown, grader = countdown) |> solver_judge() |> judged(helpful)

env nim = textarena("Nim-v0") |> rollouts(max_turns = 4) |> play(against = self) |> judged(helpful)

train main {
  model     = policy
  env       = duel + nim
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo(scope = role)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
