model policy {
  base    = "Qwen/Qwen3-8B"
  weights = state("tinker://run-id/weights/000050")
}

env sums = problems(gsm8k)

eval heldout {
  model    = policy
  env      = sums
  sampling = sample(max_tokens = 512)
}
