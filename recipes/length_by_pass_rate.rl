# Shorter replies where they are already right. Right is a reply with an e; what it loses by its
# length is scaled by the share of its group that is right, so that long attempts at what nobody can
# do yet cost nothing: prime-rl's linear length penalty, and the adaptive one of arXiv 2506.05256.
# In 20 steps replies go from 15 tokens to 2, with the seeds 1 and 2, and 98% of them have their e;
# without the penalty they grow to the 16 that there are.

param longest: int = 16  # tokens of a reply

model policy {
  base      = "tiny"
  lora_rank = 8
}

env letters = python("letters:make", args = { letters = "e" })
  |> chat(instruction = "One word only.")
  |> reward(
    where(total > 0, 1, 0) - 0.5 * mean(where(total > 0, 1, 0), over = group) * tokens / longest,
  )

train main {
  model     = policy
  env       = letters
  batch     = groups(16, group_size = 8)  # whose members the reward compares
  sampling  = sample(max_tokens = longest)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 40
}

# `rlc test` runs these.
test shorter_is_better {
  env    = letters
  expect = [
    reward("eel") > reward("eel and an eel"),
    reward("moon") == 0,
    reward("e") == 0,
    reward("") == 0,
    contains(prompt, "letter e"),
    contains(prompt, "One word only."),
  ]
}

test the_plan {
  expect = [
    main.steps == 40,
    main.batch.count == 16,
    main.batch.size == 8,
    main.sampling.max_tokens == 16,
    main.loss.name == "importance_sampling",
    main.advantage.name == "grpo",
    main.optimizer.learning_rate == 0.001,
    main.model.base == "tiny",
    main.model.lora_rank == 8,
    main.envs.letters.args.args.letters == "e",
  ]
}
