#!/usr/bin/env bash
# The tests of the lab and its scenarios, with nothing beside them: make test. Scenarios that
# judge times run first, one at a time, beside one test of the lab; a guest has one processor.
# Of the others there is one more than there are processors, for they wait for some of their
# time. On a machine that is slow or busy one of many may run out of time. Up to four that
# fail are run once more, one at a time, and named at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
run() { IBNET_LAB=require CGO_ENABLED=0 "${GO:-go}" test -vet=off -v -count=1 "$@"; }
results() { grep --line-buffered -E '^ *(---|ok|FAIL|PASS|panic)|_test.go:'; }

out=$(mktemp -d)
beside=
trap '[ -z "$beside" ] || kill -- -"$beside" 2>/dev/null || :; rm -rf "$out"' EXIT
# A group of its own, which is ended with the script: what a shell starts in the background ignores Ctrl-C.
set -m
run -timeout 70m -parallel 1 ./lab >"$out/lab" 2>&1 </dev/null &
set +m
beside=$!
ok=0
run -timeout 70m -parallel $(($(nproc) + 1)) ./lab/scenario/... | tee "$out/scenario" | results || ok=1
wait "$beside" || ok=1
beside=
results <"$out/lab"
if [ $ok = 0 ]; then
  exit 0
fi
mapfile -t failed < <(sed -n 's/^--- FAIL: \([A-Za-z0-9_]*\) .*/\1/p' "$out"/* | sort -u)
if [ ${#failed[@]} = 0 ] || [ ${#failed[@]} -gt 4 ] || grep -q '^panic:' "$out"/*; then
  exit 1
fi
echo "== once more, one at a time: ${failed[*]}"
run -p 1 -timeout 20m -parallel 1 -run "^($(IFS='|'; echo "${failed[*]}"))\$" ./lab ./lab/scenario/... | results
echo "== failed beside others, passed alone: ${failed[*]}"
