# The commands of the project. Each installs what it needs: Node modules from the lock file, and for the tests
# redis-server, luacheck, promtool and Envoy where they are missing and can be had.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
BIN := node_modules/.bin

.PHONY: help run build test lint format typecheck bench micro memory faults soak tools clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

run: build ## Serve the example rules: counters in memory, or in Redis when REDIS_URL is set
	@printf '%s\n' 'When it listens, ask it from another terminal; three attempts a minute pass:' \
	  "  node dist/main.js hit --server 127.0.0.1:$${GRPC_PORT:-8081} --domain edge endpoint=/login,user=42 --times 4" \
	  "  curl -i http://127.0.0.1:$${PORT:-8080}/json -d '{\"domain\":\"edge\",\"descriptors\":[{\"entries\":[{\"key\":\"endpoint\",\"value\":\"/login\"},{\"key\":\"user\",\"value\":\"42\"}]}]}'" \
	  'Ctrl-C stops it.'
	@export RUNTIME_ROOT="$${RUNTIME_ROOT:-$(CURDIR)/examples}" DRAIN_DELAY="$${DRAIN_DELAY:-0s}"; \
	  exec node dist/main.js serve

build: node_modules/.package-lock.json ## Compile to dist/
	@npm run --silent build

test: node_modules/.package-lock.json tools build ## Lint, check types, run all tests with coverage
	@$(MAKE) --no-print-directory typecheck lint
	@npm run --silent coverage

bench: build tools ## Measure speed beside another server (PEER=command) or an empty handler, behind Envoy, with two workers
	@node --import tsx bench/versus.ts
	@node --import tsx bench/envoy.ts
	@node --import tsx bench/workers.ts

micro: node_modules/.package-lock.json tools ## Measure each step of a decision, each algorithm, each script
	@node --expose-gc --max-semi-space-size=128 --min-semi-space-size=128 --import tsx bench/micro.ts

memory: node_modules/.package-lock.json tools ## Measure the memory of a million counters (minutes)
	@node --expose-gc --import tsx bench/memory.ts

faults: build tools ## Every fault of Redis at 2,000 requests a second; writes the table into docs/operations.md
	@node --import tsx bench/faults.ts

soak: build tools ## Ten minutes of load with random faults (MINUTES=n, PER_SECOND=n, SEED=n)
	@node --import tsx bench/soak.ts "$${MINUTES:-10}" "$${PER_SECOND:-500}" $${SEED:-}

lint: node_modules/.package-lock.json ## Lint TypeScript, Lua and deploy/; unused code; format
	@npm run --silent lint
	@if command -v luacheck >/dev/null; then \
	    node --import tsx src/main.ts script | luacheck --quiet --filename decide.lua -; \
	  else echo '*** Lua not checked: luacheck is missing (make tools)' >&2; test "$${CI:-}" != true; fi
	@scripts/check-deploy.sh

typecheck: node_modules/.package-lock.json ## Check types
	@npm run --silent typecheck

format: node_modules/.package-lock.json ## Format everything, mend what the linter can
	@npm run --silent format

tools: ## Install what the tests need beside Node, where it is missing
	@scripts/test-tools.sh

clean: ## Remove what was built and installed
	rm -rf dist coverage node_modules .tools

node_modules/.package-lock.json: package-lock.json
	@command -v node >/dev/null || { echo 'Node 20.19 or later is needed' >&2; exit 1; }
	npm ci --no-audit --no-fund --loglevel=error
	@touch $@
