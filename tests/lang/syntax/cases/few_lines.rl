model policy { base = "tiny" lora_rank = 8 env guess = gem("game:GuessTheNumber-v0-easy" |> chat()
train main { model = policy env = guess batch = groups(16, group_size = 8 steps = 50 loss = ppo()
save = every(20) } keep = 3 } eval held model = main env = guess }
