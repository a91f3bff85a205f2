# One search, then the answer. The tool's instructions ask for the `<answer>` that the grader
# reads.

model policy {
  base = "Qwen/Qwen3-8B"
}

param server: string = "http://127.0.0.1:8000/retrieve"

env questions = gem("qa:NaturalQuestions")
  |> search_tool(url = server, uses = 1, top_k = 10, timeout = 20s)
  |> concat_with_action()
  |> track()
  |> template(no)

train main {
  model     = policy
  env       = questions
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 1_024)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 50
}
