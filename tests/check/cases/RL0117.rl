param style: string = "Be brief."
env guess = gem("game:GuessTheNumber-v0-easy") |> chat(instruction = "${style} It costs ${n}$.")
env other = python("lib/games.py:make", args = { folder = "${HOME}/games", text = "${x}$" })
train main {
  env = guess + other
  model = policy
  batch = groups(16, group_size = 8)
  sampling = sample(max_tokens = 16)
  advantage = grpo()
  loss = importance_sampling()
  optimizer = adam(1e-3)
  steps = 50
}
model policy {
  base      = "tiny"
  lora_rank = 8
}
