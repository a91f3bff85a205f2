import "sums.rl"

test the_plan_stays_small {
  expect = [
    job.cost.high == $0,
    main.tokens.high < 120_000,
    main.optimizer.learning_rate == 2e-3,
    main.loss.name == "importance_sampling",
    policy.base == "tiny",
    contains(job.needs, "torch"),
    contains(job.needs, "TINKER_API_KEY") == false,
  ]
}

test a_step_changes_the_weights {
  rehearse = main
  steps    = 2
  within   = 60s
  expect   = [main.rollouts.played.sum == 32, main.rollouts.failed.sum == 0]
}
