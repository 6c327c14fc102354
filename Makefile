# CI calls these targets and nothing else, see .ci/run.

FUZZTIME   ?= 60s
BREAK_TIME ?= 60s
BREAK_SEED ?=
TESTTIME   ?= 15m

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
TOOL    := go tool -modfile=tools/go.mod
GOTEST  := go test -race -shuffle=on -count=1 -timeout=$(TESTTIME)

# Packages that test what only a build with failpoints has.
FAILPOINTS = $(sort $(dir $(shell grep -rlE --include='*_test.go' '^//go:build (.*[^!a-z])?failpoints' .)))
BENCH      = $(wildcard bench/go.mod)
# Its figures mean nothing; it shows that the benchmarks still run. -mod=mod: bench follows what the parent requires.
BENCHSMOKE = -rounds 1 -time 200ms -tasks 200 -only '^(submit/8|http/8|river/8|http-duplicates/64|drain|latency/50)$$'

.DEFAULT_GOAL := help
.PHONY: help demo dev build test check fuzz break bench postgres modules test-in-cluster

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(if $(DATABASE_URL),,postgres) build ## See it work: duplicate submissions and a killed worker, on real processes
	go run ./examples/demo --bin bin

dev: build ## Run everything here with a database of its own; Ctrl-C stops it (ARGS="--addr :8080")
	bin/onefold dev $(ARGS)

build: ## Build api, worker and onefold into bin/
	CGO_ENABLED=0 go build -trimpath -ldflags '-X github.com/onefold-dev/onefold/internal/boot.Version=$(VERSION)' \
		-o bin/ ./cmd/api ./cmd/worker ./cmd/onefold

test: modules postgres ## Run all tests on a real Postgres, with the race detector
	go build -o bin/testpg ./internal/pg/cmd/testpg
	bin/testpg $(MAKE) --no-print-directory test-in-cluster

test-in-cluster:
	$(GOTEST) ./...
	$(if $(FAILPOINTS),$(GOTEST) -tags failpoints $(FAILPOINTS))
	$(if $(BENCH),cd bench && go vet -mod=mod ./... && go run -mod=mod . $(BENCHSMOKE) >/dev/null)

check: postgres ## Vet, staticcheck, formatting, generated files
	go vet ./...
	go vet -tags failpoints ./...
	$(TOOL) staticcheck ./...
	$(TOOL) staticcheck -tags failpoints ./...
	@unformatted=$$($(TOOL) gofumpt -l .) && [ -z "$$unformatted" ] || \
		{ echo "not formatted, run: $(TOOL) gofumpt -w ." >&2; echo "$$unformatted" >&2; exit 1; }
	scripts/check-generated.sh

fuzz: ## Run each fuzz test for FUZZTIME (60s)
	FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

break: e2e/breakage postgres ## Kill, stop and cut everything for BREAK_TIME (60s), then check every promise; BREAK_SEED repeats a run
	BREAK_TIME=$(BREAK_TIME) BREAK_SEED=$(BREAK_SEED) go test ./e2e/breakage -run TestBreak -count=1 -v -timeout=$(TESTTIME)

bench: bench/go.mod postgres ## Measure against pgbench and River on this machine (ARGS="-only drain")
	cd bench && go run -mod=mod . $(ARGS)

e2e/breakage bench/go.mod:
	@echo "$@ is not there yet: this target has nothing to run" >&2; exit 1

postgres:
	@scripts/ensure-postgres.sh

modules:
	@go mod download

.PHONY: prometheus
prometheus: ## Unpack Prometheus under bin, for the tests of the dashboard and the alerts
	@scripts/ensure-prometheus.sh >/dev/null

.PHONY: alerts
alerts: ## Test the alert rules with promtool
	scripts/test-alerts.sh
