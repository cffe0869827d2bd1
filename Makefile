# `make help` lists the targets. What we ship is built without cgo; only the race
# detector needs it.

GO        ?= go
TIMEOUT   ?= 20m
GOLANGCI  ?= CGO_ENABLED=0 $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.14.0

# Packages with goroutines, locks or atomics of their own.
RACE_NAMES = db vault eventlog audit lease guard tool tools/shell run hold act approval budget checkpoint outbox agent model memory backup redact secret schedule trigger httpd wire ipc daemon tools/process channel/remote channel/telegram channel/slack channel/discord delegate harness/child harness/keyproxy mcp/client mcp/asks mcp/server mcp/guests
RACE_ONLY  = ./internal/channel ./internal/signed ./wasmloop
RACE_PKGS  = $(shell $(GO) list $(RACE_ONLY) $(patsubst %,./%/...,$(wildcard $(addprefix internal/,$(RACE_NAMES)))))

# Property tests draw from a random seed, so that every run looks somewhere new. CI
# sets RAPID_SEED, so that a change is judged by the change; 0 means random.
RAPID_SEED ?= 0
RAPID_LIST  = {{range .TestImports}}{{if eq . "pgregory.net/rapid"}}{{$$.ImportPath}} {{end}}{{end}}{{range .XTestImports}}{{if eq . "pgregory.net/rapid"}}{{$$.ImportPath}} {{end}}{{end}}
RAPID_PKGS  = $(sort $(shell $(GO) list -f '$(RAPID_LIST)' ./...))
ALL_PKGS    = $(shell $(GO) list ./...)

export CGO_ENABLED = 0

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build ./ombud
	$(GO) build -trimpath -o ombud ./cmd/ombud

.PHONY: test
test: ## set up what the tests need, then run them all
	@sh scripts/setup-tests.sh
	$(GO) test -buildvcs=false -timeout $(TIMEOUT) $(filter-out $(RAPID_PKGS),$(ALL_PKGS))
	$(GO) test -buildvcs=false -timeout $(TIMEOUT) $(filter $(RAPID_PKGS),$(ALL_PKGS)) -rapid.seed=$(RAPID_SEED)
	@sh scripts/setup-tests.sh # says again what was missing, below the results

# What root may and others may not shows in these.
USER_PKGS = $(addprefix internal/,confine tools/shell vault instance secret checkpoint)

.PHONY: test-user
test-user: ## as root: run the tests of walls, jobs and keys again as a user without rights
	@GO=$(GO) sh scripts/test-unprivileged.sh $(USER_PKGS)

.PHONY: race
race: export CGO_ENABLED = 1
race: ## run the concurrent packages under the race detector (a bounded set, -short)
	@sh scripts/setup-tests.sh race
	$(GO) test -buildvcs=false -race -short -timeout $(TIMEOUT) $(filter-out $(RAPID_PKGS),$(RACE_PKGS))
	$(GO) test -buildvcs=false -race -short -timeout $(TIMEOUT) $(filter $(RAPID_PKGS),$(RACE_PKGS)) -rapid.seed=$(RAPID_SEED)

# The programs are downloaded once, pinned, about 1.2 GB. HARNESS_ALL=1 adds more of them.
.PHONY: test-harness
test-harness: ## drive the real coding agents, pinned, against an API of ours
	@sh scripts/setup-tests.sh
	dirs=$$(sh scripts/install-harness.sh) && \
	OMBUD_TEST_HARNESS=$$dirs $(GO) test -buildvcs=false -tags harness -count 1 -timeout 20m ./internal/harness/real

# What judges it is downloaded once, pinned, about 340 MB.
.PHONY: test-mcp
test-mcp: ## have the protocol's own suite, inspector and servers judge ours
	@sh scripts/setup-tests.sh
	GO=$(GO) sh scripts/test-mcp.sh

.PHONY: campaign
campaign: ## kill the real program at every counted commit and effect, on both stores
	@sh scripts/setup-tests.sh
	$(GO) test -buildvcs=false -tags failpoint -count 1 -timeout 60m ./internal/crashtest/...

.PHONY: takeover
takeover: ## end the active of two daemons of one PostgreSQL store in four ways, 20 rounds
	@sh scripts/setup-tests.sh
	$(GO) test -buildvcs=false -count 1 -timeout 60m -parallel 2 -v -run '^TestTakeover$$' ./internal/crashtest -takeover.rounds=20

.PHONY: bench
bench: ## measure, each figure beside its limit or peer
	@sh scripts/setup-tests.sh
	$(GO) test -buildvcs=false -run '^$$' -bench . -benchtime 1x -timeout 60m ./bench/...

.PHONY: bench-peers
bench-peers: ## measure a step beside DBOS and go-workflows (a module of its own)
	@sh scripts/setup-tests.sh
	cd bench/peers && $(GO) test -buildvcs=false -run '^$$' -bench . -benchtime 1x -timeout 60m ./...

.PHONY: fmt
fmt: ## format the code
	gofmt -w $$(git ls-files -co --exclude-standard '*.go')

.PHONY: lint
lint: ## gofmt, go vet on three systems, golangci-lint
	@bad=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); [ -z "$$bad" ] || { echo "not gofmt'ed: $$bad"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags failpoint ./...
	$(GO) vet -tags harness ./internal/harness/...
	GOOS=darwin $(GO) vet ./...
	GOOS=windows $(GO) vet ./...
	$(GOLANGCI) run ./...

.PHONY: cross
cross: ## build what we ship for every system, without cgo
	for os in linux darwin windows; do for arch in amd64 arm64; do \
		echo "$$os/$$arch"; GOOS=$$os GOARCH=$$arch $(GO) build -buildvcs=false -o /dev/null ./cmd/ombud || exit 1; \
	done; done

# Generated and formatted files must be committed as they are: the tree looks the
# same after the checks as before them.
.PHONY: check
check: ## lint, cross, tidy modules; leaves no diff
	@before=$$(mktemp) && after=$$(mktemp) && trap 'rm -f $$before $$after' EXIT && \
	git status --porcelain >$$before && git diff >>$$before && \
	$(MAKE) --no-print-directory lint cross && \
	$(GO) mod tidy -diff && $(GO) mod verify && \
	git status --porcelain >$$after && git diff >>$$after && \
	diff $$before $$after || { echo "check: failed, or it changed the tree (above)"; exit 1; }
