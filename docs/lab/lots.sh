#!/usr/bin/env bash
# Starts a group of runs (a "lot", see runs.md) on one GPU, and waits until they end or reach their time limit:
#
#     bash docs/lab/lots.sh 1 --minutes 9 --stop-runs
#
# The options after the number of the lot are passed to `memes reproduce`. To continue stopped runs, repeat the command.
# Up to three processes share the GPU through CUDA's multi-process service. Lot 3 measures times, so it runs one process
# at a time.
set -euo pipefail

lot=$1
shift
options=(--runs-only --keep-archives --summaries results/evidence/summaries "$@")
mkdir -p evidence

runs() {  # NAME ARGUMENTS: start a process that writes to evidence/NAME
  memes reproduce "${@:2}" "${options[@]}" --out "evidence/$1" > >(sed "s/^/$1: /") 2>&1 &
}

if [[ " $* " == *" --list "* ]]; then
  :  # starts no runs
elif [[ $lot == 3 ]]; then
  echo quit | nvidia-cuda-mps-control || true
else
  pgrep -f nvidia-cuda-mps-control > /dev/null || nvidia-cuda-mps-control -d || echo "no multi-process service"
  export XLA_PYTHON_CLIENT_MEM_FRACTION=0.25
fi

resets=(memes-sequential memes-reset-10 memes-reset-20 memes-reset-50 memes-reset-100)
case $lot in
  1)
    runs 1a main beyond --tasks ant --labels memes memes-sampling --first-seed 0 --seeds 4
    runs 1b main beyond --tasks ant --labels memes memes-sampling me-sampling-tuned --first-seed 4 --seeds 3
    runs 1c main beyond --tasks ant --labels memes memes-sampling me-sampling-tuned --first-seed 7 --seeds 3
    ;;
  2)
    runs 2a beyond --tasks ant --labels me-sampling-tuned --first-seed 0 --seeds 4
    runs 2b main --tasks ant --labels me me-sampling --first-seed 0 --seeds 3
    runs 2c main --tasks ant --labels me me-sampling --first-seed 3 --seeds 2
    ;;
  3)
    runs 3a time --tasks hexapod ant ant-trap
    wait
    runs 3b beyond --tasks arm --labels memes-hybrid --seeds 5
    wait
    runs 3c reset sequential --tasks arm
    ;;
  4)
    runs 4a explore --tasks ant --labels memes-everything --seeds 5
    runs 4b explore --tasks ant --labels memes-elites --seeds 5
    runs 4c main explore --tasks ant --labels memes-ga me-es --seeds 5
    ;;
  5)
    runs 5a reset sequential --tasks hexapod --labels "${resets[@]}" --first-seed 0 --seeds 1
    runs 5b reset sequential --tasks hexapod --labels "${resets[@]}" --first-seed 1 --seeds 1
    runs 5c reset sequential --tasks hexapod --labels "${resets[@]}" --first-seed 2 --seeds 1
    ;;
  6)
    runs 6a reset sequential --tasks hexapod --labels "${resets[@]}" --first-seed 3 --seeds 1
    runs 6b reset sequential --tasks hexapod --labels "${resets[@]}" --first-seed 4 --seeds 1
    runs 6c main --tasks hexapod --labels me-es --seeds 5
    ;;
  7)
    runs 7a main --tasks ant --labels pga-me --seeds 3  # its training uses the whole GPU
    ;;
  8)
    runs 8a main --tasks hexapod --labels memes me memes-all --first-seed 0 --seeds 2
    runs 8b main --tasks hexapod --labels memes me memes-all --first-seed 2 --seeds 2
    runs 8c main --tasks hexapod --labels memes me memes-all --first-seed 4 --seeds 2
    ;;
  9)
    runs 9a main --tasks hexapod --labels memes me memes-all --first-seed 6 --seeds 2
    runs 9b main --tasks hexapod --labels memes me memes-all --first-seed 8 --seeds 2
    runs 9c beyond --tasks hexapod --labels memes-hybrid --seeds 5
    ;;
  10)
    runs 10a beyond --tasks ant-trap --generations 2000 --labels memes-hybrid --seeds 5
    runs 10b beyond --tasks ant-trap --generations 2000 --labels memes-sampling --seeds 5
    runs 10c beyond --tasks ant-trap --generations 2000 --labels memes --seeds 5
    ;;
  11)
    runs 11a reset sequential --tasks ant --labels memes-sequential memes-reset-10 --first-seed 0 --seeds 4
    runs 11b reset --tasks ant --labels memes-reset-20 memes-reset-50 --first-seed 0 --seeds 4
    runs 11c reset --tasks ant --labels memes-reset-100 --seeds 5
    ;;
  12)
    runs 12a reset sequential --tasks ant --labels "${resets[@]:0:4}" --first-seed 4 --seeds 1
    runs 12b explore --tasks hexapod --labels memes-everything --seeds 5
    runs 12c explore --tasks hexapod --labels memes-elites --seeds 5
    ;;
  13)
    runs 13a beyond --tasks ant-trap --generations 2000 --labels me-sampling-tuned --seeds 5
    runs 13b explore --tasks hexapod --labels memes-ga --seeds 5
    runs 13c samples --tasks hexapod --labels memes-twice-samples --seeds 5
    ;;
  14)
    runs 14a main --tasks ant-trap --labels memes --first-seed 0 --seeds 1
    runs 14b main --tasks ant-trap --labels memes --first-seed 1 --seeds 1
    runs 14c main --tasks ant-trap --labels memes --first-seed 2 --seeds 1
    ;;
  15)
    runs 15a main --tasks ant-trap --labels memes --first-seed 3 --seeds 1
    runs 15b main --tasks ant-trap --labels memes --first-seed 4 --seeds 1
    runs 15c main --tasks ant-trap --labels me-sampling --first-seed 0 --seeds 2
    ;;
  16)
    runs 16a main --tasks ant-trap --labels me-sampling --first-seed 2 --seeds 1
    runs 16b main --tasks ant-trap --labels me-sampling --first-seed 3 --seeds 1
    runs 16c main --tasks ant-trap --labels me-sampling --first-seed 4 --seeds 1
    ;;
  17)
    runs 17a samples --tasks ant --labels memes-twice-samples --first-seed 0 --seeds 3
    runs 17b samples --tasks ant --labels memes-twice-samples --first-seed 3 --seeds 2
    runs 17c lanes --tasks ant --labels memes-x4 --first-seed 0 --seeds 2
    ;;
  18)
    runs 18a lanes --tasks ant --labels memes-x4 --first-seed 2 --seeds 1
    runs 18b lanes --tasks ant --labels memes-x4 --first-seed 3 --seeds 1
    runs 18c lanes --tasks ant --labels memes-x4 --first-seed 4 --seeds 1
    ;;
  19)
    runs 19a lanes --tasks hexapod --labels memes-x4 --first-seed 0 --seeds 1
    runs 19b lanes --tasks hexapod --labels memes-x4 --first-seed 1 --seeds 1
    runs 19c lanes --tasks hexapod --labels memes-x4 --first-seed 2 --seeds 1
    ;;
  20)
    runs 20a lanes --tasks hexapod --labels memes-x4 --first-seed 3 --seeds 1
    runs 20b lanes --tasks hexapod --labels memes-x4 --first-seed 4 --seeds 1
    ;;
  21)
    runs 21a main --tasks ant --labels memes-all --seeds 5
    runs 21b main --tasks ant --labels es me-128 --seeds 5
    runs 21c main --tasks hexapod --labels es me-128 --seeds 5
    ;;
  *)
    echo "unknown lot '$lot'; choose a number from 1 to 21" >&2
    exit 2
    ;;
esac
wait
