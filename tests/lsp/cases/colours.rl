# every form of the language
import "lib/qwen.rl"
param rate: float = 4e-5

model big = policy { base = "Qwen/\"Qwen3\"", lora_rank = 32 }
env digits(size: int(1, 9) = 3, path: string, k = other.best) = python("d.py:f", args = { n = size })
  |> concat()
  |> kept

train main {
  then     = 2_000
  env      = 3 * digits + -(a / b) - 1 * [x, y.z]
  loss     = where(adv >= 0, verl.ppo(clip = 10%), true)
  on_error = retry(3) then drop
  save     = every(20, ttl = 7d)  budget = $60
}

sweep s { over = { policy.lora_rank = [8, 16] } }
expect main.cost.high < $20 - limit
