param rate = 1e-3

env guess(turns: int = 5, rate: int = 3, turns: int = 4) = gem("game:GuessTheNumber-v0-easy", max_turns = turns) |> chat()

advantage scheme(group: word(batch, role)) = grpo() |> baseline(mean, over = group)

failure patient(drop: int = 3) = retry(drop) then stop

loss mine(adv: float = 1, tau: float = 1) {
  tau   = 2
  token = -ratio * adv * tau
}

wrapper shaped(tokens: int = 3) = reward(total - 0.001 * tokens)
