# A text that ends a reply is looked for in vain where another one ends it before.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer in \\boxed{}.")
env guess = gem("game:GuessTheNumber-v0-easy") |> chat() |> rollouts(stop = ["}", "}"])

train main {
  model     = policy
  env       = spell + guess
  batch     = groups(4, group_size = 4)
  sampling  = sample(max_tokens = 16, stop = ["<|im_end|>", "]\n", "]"])
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-4)
  steps     = 2
}
