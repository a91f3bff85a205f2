env e0(n: int) = e1(n) + e1(n + 1)
env e1(n: int) = e2(n) + e2(n + 1)
env e2(n: int) = e3(n) + e3(n + 1)
env e3(n: int) = e4(n) + e4(n + 1)
env e4(n: int) = e5(n) + e5(n + 1)
env e5(n: int) = e6(n) + e6(n + 1)
env e6(n: int) = e7(n) + e7(n + 1)
env e7(n: int) = e8(n) + e8(n + 1)
env e8(n: int) = e9(n) + e9(n + 1)
env e9(n: int) = e10(n) + e10(n + 1)
env e10(n: int) = e11(n) + e11(n + 1)
env e11(n: int) = e12(n) + e12(n + 1)
env e12(n: int) = gem("game:GuessTheNumber-v0-easy", max_turns = n) |> chat()

model policy {
  base      = "tiny"
  lora_rank = 8
}

train main {
  model     = policy
  env       = e0(3)
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 50
}
