env a0 = gem("rg:chain_sum") + gem("rg:gcd") + gem("rg:lcm") + gem("rg:base_conversion")
env a1 = gem("rg:spell_backward") + gem("rg:word_sorting") + gem("rg:basic_arithmetic")
env b0 = a0 + a1 + gem("rg:prime_factorization")
env b1 = b0 + (b0 |> python_tool())
env b2 = b1 + (b1 |> search_tool("http://127.0.0.1:8000/retrieve"))
env b3 = b2 + (b2 |> concat())
env b4 = b3 + (b3 |> track())
env b5 = b4 + (b4 |> workers())
env b6 = b5 + (b5 |> reward(sum))
env b7 = b6 + (b6 |> rollouts(temperature = 1.0))
train main {
  env = b7
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
