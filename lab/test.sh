#!/usr/bin/env bash
# The tests of the lab and its scenarios, with nothing beside them: make test. On a
# machine that is slow or busy one of many scenarios may run out of time. Up to four
# that fail are run once more, one at a time, and named at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
run() { IBNET_LAB=require CGO_ENABLED=0 "${GO:-go}" test -p 1 -v -count=1 "$@" ./lab ./lab/scenario/...; }
results() { grep --line-buffered -E '^ *(---|ok|FAIL|PASS|panic)|_test.go:'; }

out=$(mktemp)
trap 'rm -f "$out"' EXIT
if run -timeout 70m | tee "$out" | results; then
  exit 0
fi
mapfile -t failed < <(sed -n 's/^--- FAIL: \([A-Za-z0-9_]*\) .*/\1/p' "$out" | sort -u)
if [ ${#failed[@]} = 0 ] || [ ${#failed[@]} -gt 4 ] || grep -q '^panic:' "$out"; then
  exit 1
fi
echo "== once more, one at a time: ${failed[*]}"
run -timeout 20m -parallel 1 -run "^($(IFS='|'; echo "${failed[*]}"))\$" | results
echo "== failed beside others, passed alone: ${failed[*]}"
