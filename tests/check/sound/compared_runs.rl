# Several sweeps of one stage, one of them of the stage before it: only the one that is named is run.
param rate: float = 1e-4
param size: int = 4
param shown: int = 64

model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
advantage scheme = rloo()

sft warmup {
  model     = policy
  data      = demonstrations(guess, n = shown)
  optimizer = adam(1e-3)
  steps     = 4
}

train main {
  model     = warmup
  env       = guess
  batch     = groups(4, group_size = size)
  sampling  = sample(max_tokens = 16)
  advantage = scheme
  loss      = importance_sampling()
  optimizer = adam(rate)
  steps     = 12
}

eval heldout {
  model   = main
  env     = guess
  tasks   = 8
  every   = 2
  metrics = [mean_reward(), pass_at(1)]
}

sweep rates {
  of    = main
  over  = { rate = [1e-5, 2 * 1e-4] }
  seeds = 2
}

sweep schemes {
  of     = main
  over   = { scheme = [rloo(), grpo(), verl.grpo()] }
  search = grid()
}

sweep sizes {
  of     = main
  over   = { size = range(2, 8, step = 2) }
  search = random(3)
}

sweep both {
  of     = main
  over   = { rate = log(1e-5, 1e-3), size = [2, 4] }
  search = tpe(12)
  metric = heldout.pass_at_1
  budget = 2h
}

sweep halved {
  of     = main
  over   = { rate = [1e-5, 3e-5, 1e-4], shown = [32, 64] }
  search = halving(eta = 2, first = 2)
}
