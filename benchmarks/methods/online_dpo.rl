# A model makes its own preferences, learns from them, and does so once more.

param grading: string = "words.py:right"

model policy {
  base      = "tiny"
  lora_rank = 8
}

env asked = rows("asked.jsonl", grader = grade_with(grading))
  |> rollouts(max_tokens = 16)

preference first {
  model     = policy
  data      = preferred(policy, env = asked, n = 64, samples = 4)
  loss      = dpo(beta = 0.1)
  optimizer = adam(1e-3)
  batch     = 16
  epochs    = 2
}

preference second = first {
  model = first
  data  = preferred(first, env = asked, n = 64, samples = 4)
}

eval before {
  model    = policy
  env      = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")
  tasks    = 128
  samples  = 4
  sampling = sample(max_tokens = 16)
}

eval heldout = before { model = second }
