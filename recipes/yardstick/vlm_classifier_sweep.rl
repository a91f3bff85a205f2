# With how many pictures of each kind it is learnt: tinker-cookbook's `vlm_classifier.sweep`.
param shots: int = 16

model policy {
  base      = "Qwen/Qwen3.5-397B-A17B"
  lora_rank = 32
  renderer  = qwen3_5_disable_thinking
}

sft main {
  model     = policy
  data      = cookbook(
    "tinker_cookbook.recipes.vlm_classifier.data:Caltech101DatasetBuilder",
    args = { examples_per_class = shots },
  )
  heldout   = cookbook(
    "tinker_cookbook.recipes.vlm_classifier.data:Caltech101DatasetBuilder",
    args = { run_nll_evaluator = true },
    split = test,
    n = 256,
  )
  every     = 50
  batch     = 32
  optimizer = adam(1e-4)
  steps     = 510  # 16,320 photos, however many are different
  save      = every(50)
}

sweep pictures {
  of     = main
  over   = { shots = [1, 2, 4, 8, 16] }
  metric = main.heldout.loss
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 510,
    main.batch == 32,
    main.optimizer.learning_rate == 0.0001,
    main.save.every == 50,
  ]
}

test what_is_trained {
  expect = [
    main.data.args.examples_per_class == 16,
    main.model.base == "Qwen/Qwen3.5-397B-A17B",
    main.model.lora_rank == 32,
    main.every == 50,
  ]
}
