# Two environments in one batch: of three tasks two are games and one is a word to spell.

model policy {
  base      = "tiny"
  lora_rank = 8
}

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
env spell = gem("rg:spell_backward") |> chat(instruction = "Put your answer inside \\boxed{}.")

train main {
  model     = policy
  env       = 2 * guess + 1 * spell  # a bare name has weight 1
  batch     = groups(18, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()  # each rollout against its own group, never across
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 40
  save      = every(20)
}

# `rlc test` runs these.
test guesses_are_answered {
  env    = guess
  expect = [
    contains(prompt, "between 1 and 10"),
    contains(prompt, "within 4 turns"),
    end("\\boxed{0}") == done,
    contains(transcript("\\boxed{1}", "\\boxed{10}"), "lower"),
    reward("five") == -0.1,
    reward("") == -0.1,
  ]
}

test the_word_backward_counts {
  env    = spell
  expect = [
    contains(prompt, "backward (example: sun -> nus): unsauced"),
    contains(prompt, "\\boxed{}"),
    reward("\\boxed{decuasnu}") == 1,
    reward("\\boxed{unsauced}") < 0.5,
    reward("") == 0,
    turns("\\boxed{decuasnu}") == 1,
  ]
}

test the_plan {
  expect = [
    main.steps == 40,
    main.batch.count == 18,
    main.batch.size == 8,
    main.sampling.max_tokens == 16,
    main.loss.name == "importance_sampling",
    main.advantage.name == "grpo",
    main.optimizer.learning_rate == 0.001,
    main.model.base == "tiny",
    main.model.lora_rank == 8,
    main.envs.guess.reward.reduce == "turns",
    main.envs.spell.reward.reduce == "turns",
    main.save.every == 20,
  ]
}
