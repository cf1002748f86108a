#!/usr/bin/env bash
# What a job on Hugging Face runs; see jobs.py.
#   PAYLOAD   the tar file          CELL, RECEIPT   what to test, and where its receipt will be
#   PACKAGES  further requirements  MARK            what begins a line of the receipt
set -euo pipefail

work=$(mktemp -d)
tar -xzf "$PAYLOAD" -C "$work"
python3 -m venv --system-site-packages "$work/venv"
export PATH="$work/venv/bin:$PATH"
read -r -d '' -a packages <<<"${PACKAGES:-}" || true
python -m pip install --quiet --retries 5 "$work"/kernel_ci-*.whl "${packages[@]}"
cd "$work/repository/$(cat "$work/prefix")"
# A failing test leaves a receipt too, and that is what the job is for.
kernel-ci test "$work/run/plan.json" "$work/run" --cell "$CELL" || true
base64 -w 120 "$work/run/$RECEIPT" | sed "s/^/$MARK/"
