# A teacher of each environment, one trained before and one that is shown what the student is not,
# and no reward: the prompts need no grader, a group of one is enough, and a stage that learns from
# another may begin as that one did.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess   = gem("game:GuessTheNumber-v0-easy") |> chat()
env guesses = rows("data/rows.jsonl") |> chat(instruction = "Answer in \\boxed{}.")

train expert {
  model     = policy
  env       = guess
  batch     = groups(8, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 20
}

train student {
  model     = policy
  env       = 2 * guess + guesses
  batch     = groups(16, group_size = 1)
  sampling  = sample(max_tokens = 16)
  loss      = importance_sampling()
  teacher   = {
    guess   = reverse_kl(expert)
    guesses = reverse_kl(policy, coef = 0.5, discount = 0.9, demonstration = "reply")
  }
  overlap   = streamed(minibatches = 4)
  optimizer = adam(1e-3)
  steps     = 20
}

train imitator {
  model     = policy
  env       = guess
  batch     = groups(16, group_size = 1)
  sampling  = sample(max_tokens = 16, temperature = 0.7)  # the tokens learnt are not those sampled
  loss      = cross_entropy()
  teacher   = forward_kl(expert, top_k = 8)
  overlap   = asynchronous(max_staleness = 1)
  optimizer = adam(1e-3)
  steps     = 20
}
