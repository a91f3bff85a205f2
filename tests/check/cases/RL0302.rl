model policy {
  lora_rank = 8
}

train main {
  model = policy
  steps = 3
}
