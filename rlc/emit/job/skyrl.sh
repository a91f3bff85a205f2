#!/usr/bin/env bash
# A server of SkyRL for this job, on one machine or on several.
#
#     bash skyrl.sh prepare    get SkyRL, and make the environments of it and of the job
#     bash skyrl.sh run        start Ray and the server, run the job on it or go on with it, stop them
#
# Both are called on every machine. What follows `run` is passed on to run.py. Settings are
# variables of the environment, which sky.yaml gives; SkyPilot says which machine this is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

: "${SKYRL_MODEL:?the base model of the job: a name on the hub, or a folder}"
: "${SKYRL_ENGINE:?fsdp, megatron or jax}"
ref=${SKYRL_REF:-skyrl-v0.4.0}                # of the repository
port=${SKYRL_PORT:-8000}                      # of the server, which this machine alone reaches
ray_port=${SKYRL_RAY_PORT:-6379}              # SkyPilot's own Ray has 6380
state=${SKYRL_STATE:-$PWD/server/state}       # shared by all machines: what a resumed run needs
patience=${SKYRL_PATIENCE:-1800}              # seconds for machines to join, and for the server
pause=${SKYRL_PAUSE:-2}                       # seconds between two looks at them
gpus=${SKYPILOT_NUM_GPUS_PER_NODE:-$(nvidia-smi -L 2>/dev/null | wc -l || true)}
nodes=${SKYPILOT_NUM_NODES:-1} rank=${SKYPILOT_NODE_RANK:-0}
read -r head _ <<<"${SKYPILOT_NODE_IPS:-127.0.0.1}"
extras=(--extra tinker --extra "$SKYRL_ENGINE")
if [ "$SKYRL_ENGINE" = jax ] && [ "$gpus" -gt 0 ]; then extras+=(--extra gpu); fi
export PATH="$HOME/.local/bin:$PATH"
# Workers of Ray run in an environment that uv makes of the same options, for the first time slowly.
export RAY_RUNTIME_ENV_HOOK=ray._private.runtime_env.uv_runtime_env_hook.hook
export RAY_worker_register_timeout_seconds=600
started=()

fail() {
  echo "error: $*" >&2
  exit 1
}

prepare() {
  command -v uv >/dev/null || curl -LsSf https://astral.sh/uv/install.sh | sh
  mkdir -p server
  if [ ! -d server/SkyRL ]; then
    git clone -q --depth 1 --branch "$ref" https://github.com/NovaSky-AI/SkyRL server/SkyRL
  fi
  # Outside of the checkout, which Ray copies to its workers.
  UV_PROJECT_ENVIRONMENT="$PWD/server/env" \
    uv sync -q --project server/SkyRL --python 3.12 "${extras[@]}"
  python3 run.py --prepare
}

# The options of the engine: training and sampling share the GPUs with FSDP, which has one model at
# a time, and have half of them each with Megatron, which has several of the same rank.
engine_config() {
  local train=$((gpus / 2))
  if [ -n "${SKYRL_CONFIG:-}" ]; then
    echo "$SKYRL_CONFIG"
  elif [ "$SKYRL_ENGINE" = jax ]; then
    echo '{"max_lora_adapters": 8, "max_lora_rank": 64, "train_micro_batch_size": 16}'
  elif [ "$SKYRL_ENGINE" = fsdp ]; then
    printf '{"trainer.placement.policy_num_nodes": %d, ' "$nodes"
    printf '"trainer.placement.policy_num_gpus_per_node": %d, ' "$gpus"
    printf '"generator.inference_engine.num_engines": %d}\n' $((nodes * gpus))
  else
    [ "$train" -gt 0 ] || fail "Megatron takes two GPUs a machine: one to train, one to sample"
    printf '{"trainer.placement.colocate_all": false, "trainer.placement.policy_num_nodes": %d, ' "$nodes"
    printf '"trainer.placement.policy_num_gpus_per_node": %d, ' "$train"
    printf '"generator.inference_engine.num_engines": %d, ' $((nodes * (gpus - train)))
    printf '"trainer.policy.megatron_config.lora_config.merge_lora": false, '
    printf '"trainer.policy.model.lora.max_loras": 2, "trainer.policy.model.lora.max_cpu_loras": 16, '
    printf '"trainer.logprobs_chunk_size": null}\n'
  fi
}

# End what this script started: ask each, and end the group of one that takes half a minute.
stop() {
  local deadline=$((SECONDS + 30)) group
  for group in "${started[@]}"; do
    kill -TERM "$group" 2>/dev/null || true
  done
  for group in "${started[@]}"; do
    while kill -0 -- "-$group" 2>/dev/null; do
      if [ "$SECONDS" -ge "$deadline" ]; then kill -KILL -- "-$group" || true; fi
      sleep 0.2
    done
  done
}

# Start a command in the background, with a log; end it with the script.
start() {
  local log=$1
  shift
  setsid "$@" >>"server/$log" 2>&1 &
  started+=($!)
}

# wait_for WHAT LOG COMMAND…: until the command succeeds, as long as what was started last lives.
wait_for() {
  local what=$1 log=$2 deadline=$((SECONDS + patience))
  shift 2
  until "$@"; do
    if [ ${#started[@]} -gt 0 ] && ! kill -0 "${started[-1]}" 2>/dev/null; then
      tail -n 50 "server/$log" >&2
      fail "$what ended: its log is server/$log"
    fi
    [ "$SECONDS" -lt "$deadline" ] || fail "$what: not there after $patience s; see server/$log"
    sleep "$pause"
  done
}

is_up() { (: <"/dev/tcp/$head/$ray_port") 2>/dev/null; }
is_healthy() { curl -fs -o /dev/null "http://127.0.0.1:$port/api/v1/healthz"; }

all_joined() {
  server/env/bin/python - "$head:$ray_port" "$nodes" <<'PYTHON' 2>/dev/null
import sys, ray
ray.init(address=sys.argv[1], logging_level="error")
sys.exit(sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[2]))
PYTHON
}

start_ray() {
  start ray.log server/env/bin/ray start "$@" --num-gpus="$gpus" --disable-usage-stats --block
}

run_head() {
  mkdir -p "$state"
  if [ "$SKYRL_ENGINE" != jax ]; then
    start_ray --head --node-ip-address="$head" --port="$ray_port"
    wait_for "the head of Ray" ray.log is_up
    wait_for "Ray with $nodes machines" ray.log all_joined
    export RAY_ADDRESS="$head:$ray_port"
  fi
  local config
  config=$(engine_config)
  start server.log env -C server/SkyRL uv run --isolated --python 3.12 "${extras[@]}" \
    -m skyrl.tinker.api --host 127.0.0.1 --port "$port" --base-model "$SKYRL_MODEL" \
    --backend "$SKYRL_ENGINE" --backend-config "$config" \
    --checkpoints-base "$state/checkpoints" --database-url "sqlite:///$state/tinker.db"
  wait_for "the server of SkyRL" server.log is_healthy
  python3 run.py --quiet --base-url "http://127.0.0.1:$port" "$@"
}

run_worker() {
  wait_for "the head of Ray at $head:$ray_port" ray.log is_up
  start_ray --address="$head:$ray_port"
  while is_up || { sleep "$pause" && is_up; }; do
    kill -0 "${started[-1]}" 2>/dev/null || fail "Ray ended on this machine: its log is server/ray.log"
    sleep "$pause"
  done
}

case ${1:-} in
  prepare) prepare ;;
  run)
    shift
    mkdir -p server
    trap stop EXIT
    if [ "$rank" = 0 ]; then run_head "$@"; else run_worker; fi
    ;;
  *) fail "say \`prepare\` or \`run\`" ;;
esac
