#!/usr/bin/env bash
# Runs the protobuf conformance suite and refuses a run that has tested nothing: the runner calls that a pass.
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! internal/transcode/conformance/run.sh >"$log" 2>&1; then
  cat "$log"
  exit 1
fi
grep 'CONFORMANCE SUITE' "$log"
successes=$(sed -nE 's/.*PASSED: ([0-9]+) successes.*/\1/p' "$log" | sort -n | tail -n 1)
if [ "${successes:-0}" -lt 5000 ]; then
  echo "tools/conformance.sh: only ${successes:-0} cases were run, want 5,000 at least" >&2
  exit 1
fi
