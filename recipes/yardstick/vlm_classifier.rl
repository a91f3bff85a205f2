# What is in a photo, with a few pictures of each kind: tinker-cookbook's `vlm_classifier`.

model policy {
  base      = "Qwen/Qwen3.5-397B-A17B"
  lora_rank = 32
  renderer  = qwen3_5_disable_thinking
}

sft main {
  model     = policy
  data      = cookbook("tinker_cookbook.recipes.vlm_classifier.data:Caltech101DatasetBuilder")
  heldout   = cookbook(
    "tinker_cookbook.recipes.vlm_classifier.data:Caltech101DatasetBuilder",
    args = { run_nll_evaluator = true },
    split = test,
  )
  every     = 20
  batch     = 32
  optimizer = adam(5e-4, schedule = cosine())
  steps     = 288  # 3,060 photos, three times
  save      = every(20)
}

# `rlc test` runs these.
test how_it_learns {
  expect = [
    main.steps == 288,
    main.batch == 32,
    main.optimizer.learning_rate == 0.0005,
    main.save.every == 20,
  ]
}

test what_is_trained {
  expect = [
    main.model.base == "Qwen/Qwen3.5-397B-A17B",
    main.model.lora_rank == 32,
    main.every == 20,
    main.optimizer.schedule.kind == "cosine",
  ]
}
