#!/usr/bin/env bash
# Benchmarks. Everything is a ratio to something measured in the same run; absolute numbers mean nothing on a shared machine.
# Arguments go to tests/bench: -quick, -only PARTS, -o DOCUMENT.
set -euo pipefail
cd "$(dirname "$0")/.."
exec go -C tests run ./bench "$@"
