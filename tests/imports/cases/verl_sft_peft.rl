# A job of verl (as in 0.9.1), imported with `rlc import`.
#
# Not carried over, or worth knowing:
#   - optim.clip_grad = 1: a limit for the mean over tokens; here the gradient is of their sum, so
#     there is none
#   - the rate rises in the first 0.1 of all steps, whose number the data decides: write `warmup =
#     …` in steps
#   - trainer.project_name = gsm8k-sft: names a W&B run, and there is none
#   - trainer.experiment_name = gsm8k-sft-qwen-2.5-0.5b-instruct: names a W&B run, and there is none
#   - no place here: data.micro_batch_size_per_gpu=4, trainer.default_local_dir=$2,
#     model.lora_alpha=16, model.target_modules=all-linear
#   - without effect beside the other options: data.val_files=['~/data/gsm8k/test.parquet']
#   - the field is nested: data.prompt_dict_keys=['question'], data.response_dict_keys=['answer']

model policy {
  # the catalogue does not know it: choose one of `rlc models`, or keep it on a server of yours,
  # with `service = tinker` and a `renderer`
  base      = "Qwen/Qwen2.5-0.5B-Instruct"
  lora_rank = 32
}

sft main {
  model     = policy
  data      = rows(
    "~/data/gsm8k/train.parquet",
    prompt = "extra_info",
    reply = "extra_info",
    max_tokens = 1024,
    too_long = drop,
  )
  batch     = 256
  optimizer = adam(
    0.0001,
    beta1 = 0.9,
    beta2 = 0.95,
    eps = 1e-8,
    weight_decay = 0.01,
    schedule = cosine(),
  )
  epochs    = 1  # of whole batches there
}
