# Replies compared with each other: a larger model reads those of a group in pairs, each pair in both
# orders, and a reply is worth the share of the others that it beats. A second judge keeps them brief.
#
# As tinker-cookbook's `preference/shorter` and `rlhf_pipeline` compare, without a reward model.

model policy {
  base      = "Qwen/Qwen3.5-4B"
  lora_rank = 32
}

model big {
  base = "Qwen/Qwen3.6-35B-A3B"
}

judge better = rubric("data/essay_rubric.md", model = big, max_tokens = 1024)
judge brief = rubric("Is it as short as it can be?", model = big, scale = [1, 5], max_tokens = 256)

env essays = rows("data/essay_prompts.jsonl")
  |> compared(better, by = pairwise)
  |> judged(0.2 * brief)

train main {
  model     = policy
  env       = essays
  batch     = groups(4, group_size = 4)
  sampling  = sample(max_tokens = 512)
  advantage = gdpo()  # each judge normalised by itself
  loss      = importance_sampling()
  optimizer = adam(4e-5)
  steps     = 50
  save      = every(10)
  budget    = $60
}

# `rlc test` runs these.
test both_judges_count {
  env    = essays
  judge  = [1, 0.5]
  expect = [
    reward("long") > reward("short"),
    reward.brief("long") == 0.2,
    reward.brief("short") == 0.1,
  ]
}

test the_plan {
  expect = [
    main.steps == 50,
    main.batch.count == 4,
    main.batch.size == 4,
    main.sampling.max_tokens == 512,
    main.loss.name == "importance_sampling",
    main.advantage.name == "gdpo",
    main.optimizer.learning_rate == 4e-5,
    main.model.base == "Qwen/Qwen3.5-4B",
    main.model.lora_rank == 32,
    main.envs.essays.judging.compared.judges.better.max_tokens == 1_024,
    main.envs.essays.judging.judged.judges.brief.weight == 0.2,
    main.envs.essays.judging.judged.judges.brief.high == 5,
    main.envs.essays.judging.judged.judges.brief.max_tokens == 256,
    main.save.every == 10,
  ]
}
