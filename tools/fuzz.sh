#!/usr/bin/env bash
# Runs every fuzz target of the root module for a while each: tools/fuzz.sh 10s
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
found=0
while IFS=: read -r file _ line; do
  name=$(sed -E 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/' <<<"$line")
  found=$((found + 1))
  echo "--- $name in $(dirname "$file") for $time"
  go test "./$(dirname "$file")" -run '^$' -fuzz "^$name\$" -fuzztime "$time" -parallel 2
done < <(grep -rnE '^func Fuzz[A-Za-z0-9_]*\(' --include='*_test.go' internal interceptors gateway mcpadapter cmd)
if [ "$found" -eq 0 ]; then
  echo "tools/fuzz.sh: no fuzz target found; the search is broken" >&2
  exit 1
fi
echo "$found fuzz targets, no failure"
