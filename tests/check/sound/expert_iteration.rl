# Rounds of learning from one's own successes, each played by what the round before left; then from
# all that a model writes with a system message, and from its better half, learnt without it. Rows
# that nothing rewards are no mistake where every reply is kept.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess   = gem("game:GuessTheNumber-v0-easy") |> chat(system = "Halve the range with every guess.")
env guesses = rows("data/rows.jsonl") |> chat(instruction = "Answer in \\boxed{}.")

data played(who: model, least: float) = samples(
  who,
  env = guess,
  n = 200,
  keep = at_least(least),
  samples_per_task = 4,
  per_task = 1,
)

sft round1 {
  model     = policy
  data      = played(policy, 0.5)
  epochs    = 1
  optimizer = adam(1e-3)
}

sft round2 {
  model     = round1
  data      = samples(round1, env = guess, n = 200, keep = best, samples_per_task = 4, tries = 4)
  epochs    = 1
  optimizer = adam(1e-3)
}

sft terse {
  model     = round2
  data      = samples(
    round2,
    env = guesses,
    n = 64,
    keep = all,
    sampling = sample(max_tokens = 16, temperature = 0.7),
  )
  epochs    = 1
  optimizer = adam(1e-3)
}

sft unprompted {
  model     = terse
  data      = samples(terse, env = guess, n = 64, keep = solved, without = system)
  epochs    = 1
  optimizer = adam(1e-3)
}
