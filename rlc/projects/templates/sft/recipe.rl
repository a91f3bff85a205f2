# PROJECT_NAME: a model learns from chats that show what to say. Takes about ten seconds on two cores.

model policy {
  base      = "tiny"  # included in rlc, 0.8M parameters; `rlc catalog model` lists others
  lora_rank = 8
}

sft main {
  model     = policy
  data      = chats("data/chats.jsonl", train_on = last)
  batch     = 8
  optimizer = adam(3e-3, schedule = linear(warmup = 2))
  epochs    = 80
}

# The same questions, answered by the model: how many does it get right?
env questions = problems("data/questions.jsonl", grader = exact)

eval answers {
  model    = main
  env      = questions
  sampling = sample(max_tokens = 12)
  tasks    = 8
  samples  = 2
  metrics  = [mean_reward()]
  first    = true  # before the first step as well, to compare
}

# `rlc test` runs these.
test answers_are_compared {
  env    = questions
  task   = { question = "What is red in French?", answer = "rouge" }
  expect = [reward("rouge") == 1, reward("vert") == 0, reward("") < 0]
}

test the_loss_falls {
  rehearse = main
  steps    = 5
  expect   = [main.loss.last < main.loss.first]
}
