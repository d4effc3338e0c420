# Everything a contributor needs. `make test` is the one test command: it is what CI runs.

GO            ?= go
LINT_VERSION  := v2.12.2
VULN_VERSION  := v1.1.4
GOLANGCI      := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
FUZZTIME      ?= 30s
# How many requests make soak sends; what make soak and make crash throw their dice with, 0 for another seed each time.
SOAK          ?= 1000000
SEED          ?= 0
SEEDS         ?= 0
# Packages that start several servers each; more than two at once on two cores only slows all of them down.
PARALLEL      ?= 2
# Modules of their own, for what only they need: each folder below that has a go.mod.
NESTED        := $(patsubst %/go.mod,%,$(sort $(shell find . -mindepth 2 -name go.mod -not -path './.*')))

# Packages whose tests count allocations: not with the race detector, which allocates too.
COUNTED        = ./dedup ./gormplugin ./lock ./lockkey ./middleware

# nested runs a command in each of them, until one fails.
nested         = @set -e; for module in $(NESTED); do echo "$$module: $(1)"; (cd $$module && $(1)); done

.PHONY: test test-mysql test-fast test-newest servers fmt lint tidy fuzz crash soak golden bench examples ci

## test: install the servers that are missing, then run everything against private ones; nothing is skipped
test: servers
	HOLDFAST_REAL=require $(GO) test -race -shuffle=on -p $(PARALLEL) -timeout 15m ./...
	HOLDFAST_REAL=require $(GO) test -run Alloc $(COUNTED)
	$(call nested,HOLDFAST_REAL=require $(GO) test -race -shuffle=on -p $(PARALLEL) -timeout 15m ./...)
	@if [ -n "$$HOLDFAST_MYSQL_DSN" ]; then $(MAKE) --no-print-directory test-mysql; else \
	  echo "not run, for want of a MySQL 8 server (make test-mysql):"; \
	  $(GO) test -tags mysql8 -list '^TestMySQL8' ./gormplugin | sed -n 's/^Test/  &/p'; fi

## test-mysql: gormplugin on the MySQL 8 server that HOLDFAST_MYSQL_DSN names, such as root:secret@tcp(127.0.0.1:3306)/
test-mysql:
	@test -n "$$HOLDFAST_MYSQL_DSN" || { echo "set HOLDFAST_MYSQL_DSN to a MySQL 8 server, as a user who may create databases"; exit 2; }
	HOLDFAST_REAL=require $(GO) test -tags mysql8 -race -shuffle=on -timeout 15m ./gormplugin

## test-fast: embedded parts only, no server needed, under a minute once built
test-fast:
	HOLDFAST_REAL=off $(GO) test -shuffle=on ./...
	$(call nested,HOLDFAST_REAL=off $(GO) test -shuffle=on ./...)

## test-newest: the fast tests with the newest dependencies instead of the least ones
test-newest:
	HOLDFAST_REAL=off $(GO) test -modfile=newest.mod -shuffle=on -p $(PARALLEL) ./...

servers:
	@./scripts/servers.sh

fmt:
	$(GOLANGCI) fmt ./...

lint:
	$(GO) vet ./...
	$(GOLANGCI) run ./...
	$(GO) run golang.org/x/vuln/cmd/govulncheck@$(VULN_VERSION) ./... || echo "govulncheck: its database could not be reached, or it found something (see above)"

## tidy: go.mod must be what `go mod tidy` writes
tidy:
	$(GO) mod tidy -diff
	$(call nested,$(GO) mod tidy -diff)

## fuzz: each fuzz target for FUZZTIME
fuzz:
	@for pkg in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "$$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
	  done; done

## crash: break a whole shop at every point in every way, once for each of SEEDS; some twenty minutes a seed
crash: servers
	@for seed in $(SEEDS); do \
	  HOLDFAST_REAL=require $(GO) test ./internal/crash -count=1 -run TestEach -long -seed $$seed -timeout 60m || exit 1; done

## soak: SOAK requests while everything breaks at random, and a page of figures; SEED=7 repeats what was random
soak: servers
	HOLDFAST_REAL=require $(GO) test ./internal/crash -count=1 -run TestSoak -v -soak $(SOAK) -seed $(SEED) -timeout 120m

## golden: rewrite what the scenarios show in traces and metrics; review the change
golden:
	HOLDFAST_REAL=require $(GO) test ./internal/telemetry -run TestGolden -update

## bench: one iteration of every benchmark, to see that it runs; see docs/performance.md for figures
bench:
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...

## examples: build and run each example once
examples:
	$(GO) run ./examples/flashsale table -duration 2s
	$(GO) run ./examples/payment
	$(GO) run ./examples/existing-router
	$(GO) run ./examples/quota
	$(GO) run ./examples/balance
	$(GO) run ./examples/cronjob
	$(GO) -C examples/ratelimit run .

ci: tidy lint test test-newest examples
