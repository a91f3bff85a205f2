# the evaluation has rows that were imitated
model policy { base = "tiny" }
env sums = problems("data/sums.json", split = last(75%), grader = exact)
sft main {
  model     = policy
  data      = rows("data/sums.json", prompt = "question", reply = "answer", split = first(90%))
  batch     = 2
  optimizer = adam(1e-4)
  steps     = 2
}
eval test { model = main  env = sums  tasks = 2  sampling = sample(max_tokens = 8) }
