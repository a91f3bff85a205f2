model policy(rank: int) = deeper(rank)
model deeper(rank: int) = policy(rank)
env guess(turns: int) = guess(turns) |> chat()
