#!/usr/bin/env bash
# Makes training text with the default model and trains its four drafters: minutes with a CUDA device, hours without.
# Every part goes on where it was when the script is run again.
#
#   scripts/train_drafters.sh [FOLDER]      TOKENS=4000000 DEVICE=auto THREADS=2 PYTHON=.venv/bin/python
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-out/drafters}
python=${PYTHON:-.venv/bin/python}
device=${DEVICE:-auto}
threads=${THREADS:-2}
text=$out/text.jsonl

mkdir -p "$out"
"$python" -m explorer synthesize --out "$text" --tokens "${TOKENS:-4000000}" --threads "$threads" --set device="$device"

train() {
  kind=$1
  shift
  "$python" -m explorer train "$kind" --data "$text" --out "$out/smollm2-135m-$kind" --threads "$threads" \
    --set device="$device" --set features="$out/features" "$@"
}
train medusa --epochs 2.5 --set head_layers=2
train eagle --epochs 2.5 --unroll-epochs 1.5
train eagle3 --epochs 1.5 --set warm_epochs=1.5
train draft-model --epochs 2.5
