# How good is a model before any training? A game of several turns, eight attempts at each of 32
# numbers; and a few problems for two solvers and a judge. Nothing is trained.
#
#     rlc run recipes/evaluate_only.rl
#
# The same with `base = "Qwen/Qwen3.5-4B"`, or with `weights = "tinker://…"` for a state of a run.

model policy {
  base = "tiny"
}

env duel = problems(countdown, split = "test", grader = countdown, format_coef = 0.0)
  |> solver_judge(solvers = 2)

env guess = gem("game:GuessTheNumber-v0-easy") |> chat()

# pass_at(k) is unbiased: of all choices of k among the samples, the share with a right one.
# any_at(k) looks at the first k alone. A judge's pick decides; solvers are counted beside it.
eval countdown {
  model    = policy
  env      = duel
  tasks    = 4
  samples  = 2
  sampling = sample(max_tokens = 24)
  metrics  = [pass_at(1), pass_at(2), any_at(2)]
}

eval games {
  model    = policy
  env      = guess
  tasks    = 32
  samples  = 8
  sampling = sample(max_tokens = 16)
  metrics  = [mean_reward(), pass_at(1), pass_at(8), any_at(8)]
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

test the_plan {
  expect = [
    countdown.sampling.max_tokens == 24,
    countdown.model.base == "tiny",
    countdown.envs.duel.args.split == "test",
    countdown.envs.duel.args.format_coef == 0,
    games.sampling.max_tokens == 16,
    games.model.base == "tiny",
    countdown.tasks == 4,
    countdown.samples == 2,
    games.tasks == 32,
    games.samples == 8,
  ]
}
