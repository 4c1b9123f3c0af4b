#!/bin/bash
# One run of jaxsens on a TPU slice (v5e, v6e) from the queue of Cloud TPU, without Kubernetes.
#
#     jobs/queued-resource.sh            waits for the slice, runs, waits again if it is preempted
#
# Edit the lines marked EDIT. The run folder must outlive the slice, so it is in a bucket.
# This script itself must go on: run it in tmux on a machine that stays.
set -u

NAME=${NAME:-jaxsens}
PROJECT=${PROJECT:-my-project} # EDIT: where
ZONE=${ZONE:-us-east5-b}
TYPE=${TYPE:-v5litepod-16} # EDIT: the slice; v6e-16 has the runtime v2-alpha-tpuv6e
RUNTIME=${RUNTIME:-v2-alpha-tpuv5-lite}
IMAGE=${IMAGE:-REGISTRY/jaxsens:latest}
RUN=${RUN:---exp vision --preset paper --workdir gs://my-bucket/runs/vision-paper} # EDIT: what to run
MAX_RESTARTS=${MAX_RESTARTS:-100}
POLL_SECONDS=${POLL_SECONDS:-60}
LOGS=${LOGS:-logs-$NAME}

here=(--project="$PROJECT" --zone="$ZONE")

state() {
  gcloud compute tpus queued-resources describe "$NAME" "${here[@]}" --format='value(state.state)' 2>/dev/null
}

delete() {
  gcloud compute tpus queued-resources delete "$NAME" "${here[@]}" --force --quiet
}

# Waits until the slice is there. One that was taken away cannot come back: it is asked for anew.
acquire() {
  local now
  while now=$(state) && [[ $now != ACTIVE ]]; do
    case $now in
      FAILED | SUSPENDING | SUSPENDED) delete || return ;;
    esac
    sleep "$POLL_SECONDS"
  done
  [[ ${now:-} == ACTIVE ]] && return
  gcloud compute tpus queued-resources create "$NAME" --node-id="$NAME" "${here[@]}" \
    --accelerator-type="$TYPE" --runtime-version="$RUNTIME" --spot || return
  while now=$(state) && [[ $now != ACTIVE ]]; do
    echo "$(date +%T) $NAME: $now"
    [[ $now == FAILED || $now == SUSPENDED ]] && return 1
    sleep "$POLL_SECONDS"
  done
  [[ ${now:-} == ACTIVE ]]
}

# Runs on all hosts of the slice; the exit status is theirs, which all share. Host i writes its own
# log. Programs are kept on the host's disk; 8482 is the port at which the hosts meet. A host that
# is lost is noticed after 30 s, by the heartbeat that jaxsens sets.
run() {
  mkdir -p "$LOGS"
  rm -f "$LOGS"/*.log
  gcloud compute tpus tpu-vm ssh "$NAME" "${here[@]}" --worker=all --output-directory="$LOGS" --command="
    sudo docker run --rm --privileged --net=host -v /tmp/programs:/programs \
      -e JAX_COMPILATION_CACHE_DIR=/programs -e JAX_COORDINATOR_PORT=8482 \
      $IMAGE python -m jaxsens.run $RUN
    echo \"jaxsens exit status \$?\""
  # Without a word from any host the connection was lost, with the slice or alone: try again.
  local said
  said=$(grep -ho 'jaxsens exit status [0-9]*' "$LOGS"/*.log 2>/dev/null | awk '{print $4}' | sort -n | tail -1)
  return "${said:-75}"
}

for ((restart = 0; restart <= MAX_RESTARTS; restart++)); do
  if acquire; then
    run
    status=$?
  else
    status=75
  fi
  # 0 done; 1 and 2 permanent; 75, and 128 and more, to be tried again.
  if ((status != 75 && status < 128)); then
    delete
    exit "$status"
  fi
  echo "$(date +%T) exit status $status: try $((restart + 1)) of $MAX_RESTARTS again"
  sleep "$POLL_SECONDS"
done
delete
exit 75
