#!/usr/bin/env bash
# Runs the mesh in front of the log service, which follows the mesh's own log: what you search is what Toolway did; and of the runbook service.
set -euo pipefail
cd "$(dirname "$0")/../.."
dir=.cache/run
mkdir -p "$dir"
log=$dir/toolway.log
: >"$log"

pids=()
stop() {
  trap - EXIT INT TERM
  kill -TERM "${pids[@]}" 2>/dev/null || true
  wait
}
trap stop EXIT
trap 'exit 0' INT TERM

bin/logs --addr 127.0.0.1:7171 --data "$dir/logs" --ingest-file "$log" 2>"$dir/logs.log" &
pids+=($!)
bin/runbooks --addr 127.0.0.1:7174 --dir services/runbooks/samples 2>"$dir/runbooks.log" &
pids+=($!)
bin/toolway serve --backend logs=127.0.0.1:7171 --descriptors logs=deploy/local/contracts/logs.binpb \
  --backend runbooks=127.0.0.1:7174 --descriptors runbooks=deploy/local/contracts/runbooks.binpb --log-format json 2>>"$log" &
mesh=$!
pids+=($mesh)

ready=
for _ in $(seq 60); do
  if bin/toolway tools show logs_search >/dev/null 2>&1 && bin/toolway tools show runbooks_search >/dev/null 2>&1; then ready=1; break; fi
  kill -0 "$mesh" 2>/dev/null || break
  sleep 0.2
done
if [ -z "$ready" ]; then
  echo "the mesh did not come to serve the services; their logs:" >&2
  tail -n 20 "$log" "$dir/logs.log" "$dir/runbooks.log" >&2
  exit 1
fi

cat <<'TXT'

Toolway is up: gRPC 127.0.0.1:7070, HTTP and MCP 127.0.0.1:8080, admin 127.0.0.1:8081. Its log goes to the log service behind it.
Paste any of these in another terminal; each asks the same method through another door:

  gRPC  bin/toolway tools call --backend 127.0.0.1:7070 logs_search '{"query":"*","pageSize":3}'

  HTTP  curl -s 'http://127.0.0.1:8080/v1/logs:search?query=*&pageSize=3'

  MCP   curl -s http://127.0.0.1:8080/mcp -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \
          -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"logs_search","arguments":{"query":"*","pageSize":3}}}'

And the live stream, event by event:  curl -N -H 'Accept: text/event-stream' 'http://127.0.0.1:8080/v1/logs:tail?query=*'

Runbooks are tools too, and resources and prompts in MCP:  curl -s 'http://127.0.0.1:8080/v1/runbooks:search?query=no+space+left'

Ctrl-C stops everything.
TXT
wait "$mesh"
