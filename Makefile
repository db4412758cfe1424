# Two commands are all a newcomer needs: `make run` and `make test`. Everything they need is fetched through go.mod, package.json and,
# in CI, Debian's packages.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BUF  := go tool -modfile=tools/go.mod buf
LINT := go tool -modfile=tools/go.mod golangci-lint
MODULES := . services tests
FUZZTIME ?= 10s

.PHONY: help
help: ## Show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

.PHONY: build
build: ## Build bin/toolway and the services
	go build -o bin/toolway ./cmd/toolway
	for cmd in services/*/cmd; do name=$$(basename $$(dirname $$cmd)); go -C services build -o ../bin/$$name ./$$name/cmd; done

.PHONY: run
run: build ## Run the mesh in front of the log and runbook services, with three commands to try
	@deploy/local/run.sh

.PHONY: demo-incident
demo-incident: ## An incident from fault to audit trail: a shop, five services, one mesh, in half a minute
	@go -C tests run ./demo

.PHONY: test
test: ## Test everything: units, and the built binary before real servers
	@tools/packages.sh
	go test ./...
	go -C services test ./...
	go -C tests test ./...

.PHONY: race
race: ## The same with the race detector
	go test -race ./...
	go -C services test -race ./...
	go -C tests test -race ./...

.PHONY: fuzz
fuzz: ## Fuzz every parser of outside bytes for FUZZTIME each (default 10s)
	@tools/fuzz.sh $(FUZZTIME)

.PHONY: conformance
conformance: ## Run the official protobuf conformance suite against the transcoder
	@tools/conformance.sh

.PHONY: mcp-conformance
mcp-conformance: ## Run the official MCP conformance suite and write docs/conformance.md
	go -C tests test ./conformance -count=1 -update

.PHONY: lint
lint: ## Lint Go and protobuf, and check the contract against the last release
	@for m in $(MODULES); do (cd $$m && $(subst tools/go.mod,$(CURDIR)/tools/go.mod,$(LINT)) run --config $(CURDIR)/.golangci.yml ./...); done
	$(BUF) lint
	$(BUF) breaking proto --against proto/released.binpb

.PHONY: vet
vet: ## go vet in every module
	@for m in $(MODULES); do go -C $$m vet ./...; done

.PHONY: generate
generate: ## Regenerate gen/ from proto/
	$(BUF) generate
	$(BUF) build --path proto/toolway/v1 --as-file-descriptor-set -o internal/meshapi/contract.binpb # with comments, which generated code has not
	@mkdir -p deploy/local/contracts
	for p in proto/agentops/*; do $(BUF) build --path $$p --exclude-imports --as-file-descriptor-set -o deploy/local/contracts/$$(basename $$p).binpb; done # as above, of each service
	go -C tests generate .

.PHONY: release-contract
release-contract: ## Make the present contract the one that buf breaking checks against
	$(BUF) build proto -o proto/released.binpb

.PHONY: bench
bench: ## Ours next to its peers, as ratios, in about ten minutes; BENCH_OUT=docs/performance.md writes the tables there too
	@tools/bench.sh $(if $(BENCH_OUT),-o $(abspath $(BENCH_OUT)))

.PHONY: bench-quick
bench-quick: ## Ours alone, in under a minute
	@tools/bench.sh -quick

.PHONY: load
load: ## 2,000 idle readers of task events and 200 busy ones: memory, lag, nothing lost
	go -C tests run ./bench -load

.PHONY: load-streams
load-streams: ## 4,900 silent streams of each kind: memory; takes 25 minutes
	go -C tests run ./bench -streams -idle 4900

.PHONY: load-quick
load-quick: ## The same with a tenth of the events
	go -C tests run ./bench -load -quick

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin .cache
