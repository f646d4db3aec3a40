#!/usr/bin/env bash
# Reads everything in deploy/ with the tool that knows its format. A tool that is missing is said, and fails in CI.
set -u
cd "$(dirname "$0")/.."
PATH="$PWD/.tools/bin:$PATH"

failed=0

# check NAME TOOL ARGUMENT... : runs the tool, or says that it is missing.
check() {
  local name=$1
  shift
  if ! command -v "$1" >/dev/null; then
    printf '*** %s not checked: %s is missing (make tools)\n' "$name" "$1" >&2
    if [ "${CI:-}" = true ]; then failed=1; fi
    return
  fi
  local output
  if output=$("$@" 2>&1 </dev/null); then
    printf 'ok  %s\n' "$name"
  else
    printf '%s\nFAIL %s\n' "$output" "$name" >&2
    failed=1
  fi
}

check 'deploy: YAML' yamllint --strict -c deploy/.yamllint.yaml deploy
check 'deploy: Dockerfile' hadolint deploy/Dockerfile
for file in deploy/kubernetes/*.yaml; do
  [ "$(basename "$file")" = kustomization.yaml ] || check "deploy: ${file#deploy/}" kubernetes-validate --strict --no-warn "$file"
done
check 'deploy: Prometheus' promtool check config --lint=all deploy/prometheus/prometheus.yml
check 'deploy: Envoy' envoy --mode validate --log-level warning -c deploy/envoy/envoy.yaml
exit "$failed"
