# A job of verl (as in 0.9.1), imported with `rlc import`.
#
# Not carried over, or worth knowing:
#   - optim.clip_grad = 1: a limit for the mean over tokens; here the gradient is of their sum, so
#     there is none
#   - the rate rises in the first 0.1 of all steps, whose number the data decides: write `warmup =
#     …` in steps
#   - no place here: defaults=[{'optim': 'fsdp'}, '_self_'], data.micro_batch_size_per_gpu=4,
#     data.multiturn.tools_key=…, data.multiturn.enable_thinking_key=…, data.truncation=error,
#     data.balance_dp_token=false, data.use_shm=false, model.use_shm=false,
#     model.fsdp_config.model_dtype=fp32, model.fsdp_config.wrap_policy.min_num_params=0,
#     model.fsdp_config.cpu_offload=false, model.fsdp_config.offload_params=false,
#     model.enable_gradient_checkpointing=true, model.trust_remote_code=false, model.lora_alpha=16,
#     model.target_modules=all-linear, model.use_liger=false, model.strategy=fsdp2,
#     ulysses_sequence_parallel_size=1, use_remove_padding=false,
#     trainer.default_local_dir=checkpoints/${trainer.project_name}/${trainer.experiment_name},
#     trainer.seed=1, trainer.nnodes=1, trainer.n_gpus_per_node=8, trainer.resume_mode=auto,
#     trainer.checkpoint.save_contents=['model', 'optimizer', 'extra'],
#     trainer.checkpoint.load_contents=['model', 'optimizer', 'extra'], trainer.device=cuda
#   - without effect beside the other options: data.val_files=['~/data/gsm8k/test.parquet']

model policy {
  # the catalogue does not know it: choose one of `rlc models`, or keep it on a server of yours,
  # with `service = tinker` and a `renderer`
  base      = "~/models/gemma-1.1-7b-it"
  # all weights are trained there; here an adapter is, which takes about ten times the rate
  lora_rank = 32
}

sft main {
  model     = policy
  data      = rows(
    "~/data/gsm8k/train.parquet",
    prompt = "question",
    reply = "answer",
    max_tokens = 1024,
    too_long = drop,
  )
  batch     = 256
  optimizer = adam(
    1e-5,
    beta1 = 0.9,
    beta2 = 0.95,
    eps = 1e-8,
    weight_decay = 0.01,
    schedule = cosine(),
  )
  epochs    = 4  # of whole batches there
  track     = [wandb("gsm8k-sft", run = "test")]
}
