model policy {
  base       = "tiny"
  lora_rank  = 4
  train_attn = false
}
