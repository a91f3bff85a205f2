model policy {
  base      = "tiny"
  lora_rank = 8
}

env sums = rows("sums.jsonl", prompt = "question", grader = grade_with("sums.py:right"))
  |> chat(instruction = "Only the number.")

train main {
  model     = policy
  env       = sums
  batch     = groups(2, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(2e-3)
  steps     = 40
}

test the_answer_counts {
  env    = sums
  task   = { question = "What is 1 + 1?", answer = "2" }
  expect = [
    reward("2") == 1,
    reward("1 + 1 = 2") == 1,
    reward("3") == 0,
    reward("") == 0,
    reward("2 or 3") == 0,
    end("2") == done,
    contains(prompt, "Only the number."),
  ]
}
