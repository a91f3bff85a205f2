model "policy" {
  base = "tiny"
}

[train.main]
model = policy
env   = guess  # from elsewhere
steps = 10

[eval]
model = main
env   = guess

sft warmup:
    model = policy
    steps = 5

    batch: 32

param rate:
  float = 1e-4

train:
  model = warmup
  env   = guess
