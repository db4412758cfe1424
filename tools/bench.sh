#!/usr/bin/env bash
# Benchmarks. Everything is a ratio to something measured in the same run; absolute numbers mean nothing on a shared machine.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = quick ]; then
  go -C tests run ./bench -quick
  exit
fi
echo "== doors and start-up: the built binary before a server, against direct gRPC"
go -C tests run ./bench
echo "== codec: direct transcoder against dynamicpb + protojson"
go test ./internal/transcode -run '^$' -bench . -benchtime 300ms
echo "== chain: the default policies over the bare stream"
go test ./interceptors -run '^$' -bench . -benchtime 300ms
echo "== doors in one process"
go test ./internal/proxy ./mcpadapter ./gateway -run '^$' -bench . -benchtime 300ms
echo "== catalog and schemas"
go test ./internal/catalog ./internal/toolschema -run '^$' -bench . -benchtime 300ms
