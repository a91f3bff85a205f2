env missing_comma(size: int = 3 turns: int = 4) = gem("game:A") |> chat()
env missing_colon(size int, turns int(1, 9) = 3) = gem("game:A")
env missing_default(size: int = ) = gem("game:A")
env missing_type(size: = 3) = gem("game:A")
env twice(size:: int) = gem("game:A")
env c_style(int size = 3, double rate) = gem("game:A")
env equals(size: int == 3) = gem("game:A")
env unclosed(size: int = 3, turns = 4 = gem("game:A")

model colon    = policy { lora_rank: 16 }
model nothing  = policy { lora_rank 16  train_mlp = false }
model comma    = policy { lora_rank = 16,, train_mlp = false }
model dotted   = policy { optimizer..rate = 16 }
model part     = policy { optimizer. = 16 }
model equal    = policy { lora_rank == 16 }
model with     = policy with { lora_rank = 16 }
model unclosed = policy { lora_rank = 16

train stage(m: model rate: float) { model = m  steps 3 }
train after = stage(policy, rate == 3) { steps: 3 }
