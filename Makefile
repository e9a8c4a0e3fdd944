# ibnetworkd. `make help` lists the targets.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS   += --no-print-directory

VERSION ?= $(shell dist/version.sh)
DESTDIR ?=
PREFIX  ?= /usr
BIN     := build/bin
GO      ?= go
export GOTOOLCHAIN ?= local

LDFLAGS := -s -w -X ibnetworkd/internal/version.Version=$(VERSION)
MAINS   := ibnetworkd ibnetctl ibnetsm
LAB     := $(GO) run ./cmd/ibnetlab

# Tools that check the tree, at the versions it was written with.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

.PHONY: build
build: ## the three programs, static, in build/bin
	@mkdir -p $(BIN)
	@for m in $(MAINS); do echo "build $$m"; CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/$$m ./cmd/$$m; done

.PHONY: demo
demo: ## two hosts, one cable, on a real kernel without hardware
	@CGO_ENABLED=0 IBNET_LAB=require $(GO) test -count=1 -timeout 30m -v -run '^TestDemo$$' ./lab/scenario -demo | grep --line-buffered -vE '^(=== |PASS|ok )' | sed -uE 's/^--- PASS: [^ ]+ /done /'

# Programs that the tests run as references: Debian's subnet manager and its
# tools, the bus, promtool of prometheus, the C compiler for the race detector.
# Installing opensm or prometheus starts it, so its unit is masked first.
# dpkg-query fails for a package that it does not know: that one is missing.
DEPS := gcc libc6-dev opensm ibsim-utils infiniband-diags ibutils dbus systemd iproute2 man-db prometheus

.PHONY: deps
deps:
	@missing=$$({ dpkg-query -W -f='$${db:Status-Status} $${Package}\n' $(DEPS) 2>/dev/null || :; } | awk '$$1 == "installed" {print $$2}' | sort | comm -13 - <(printf '%s\n' $(DEPS) | sort)); \
	if [ -n "$$missing" ]; then \
	  echo "== installing what the tests run as references:" $$missing; \
	  [ "$$(id -u)" = 0 ] || { echo "not root: install them and run make again"; exit 1; }; \
	  for s in opensm prometheus; do case "$$missing" in *$$s*) mkdir -p /etc/systemd/system; [ -e /etc/systemd/system/$$s.service ] || ln -s /dev/null /etc/systemd/system/$$s.service;; esac; done; \
	  apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi

# Packages without goroutines in code and tests, as internal/walls checks: the race
# detector finds nothing there and triples their time.
SEQUENTIAL := $(addprefix ibnetworkd/,$(shell cat internal/walls/sequential.txt))

# All tests of sm/route would take a quarter of an hour with it: RACED runs its goroutines. Those
# of sm/explain have no others, the importer uses its names of engines alone, and internal/walls
# reads files.
ALONE   := ibnetworkd/sm/route
UNRACED := $(ALONE) $(addprefix ibnetworkd/,sm/explain sm/picture cmd/ibnetctl/importer internal/walls)
RACED   := '^(TestAhead|TestCutChangesLittle)$$'

# Tests that take minutes with it, for what they compute and count: the others run the same
# goroutines on smaller fabrics.
LARGE   := '^(TestEndlessDevice|TestTakeoverOf972|TestFirstSweepSMPs|TestAgents|TestRestartElsewhere|TestRestartWritesNothing|TestLevelToTheManager|TestForetellRegistrations)$$'
LARGEIN := ./sm/engine ./cmd/ibnetctl

# The others, each with what its tests import. Where two goroutines of a synctest bubble run their
# timers at once the race detector crashes (golang/go#78156), so these tests have one processor: it
# compares what is ordered, not what ran at once.
RACE = $(GO) list -f '{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./... | \
	grep -vE '^ibnetworkd/lab(/scenario)? ' | awk 'NR==FNR {skip[$$1]; next} !($$1 in skip)' <(printf '%s\n' $(SEQUENTIAL) $(UNRACED)) -

# What runs beside the rest has a process group of its own, which is ended with make: a test that
# the shell starts in the background ignores Ctrl-C. sm/route is one long test on one processor.
# make lint vets everything once; go test would do it for each way to compile.
.PHONY: test
test: deps lab ## everything that must pass, on this machine and on the lab's kernels
	@echo "== unit tests, with the race detector where there are goroutines"; \
	all=(); trap 'for j in $$(jobs -pr); do kill -- -$$j || :; done' EXIT; \
	beside() { set -m; "$$@" </dev/null & set +m; all+=($$!); }; \
	beside env CGO_ENABLED=0 $(GO) test -vet=off -timeout 20m $(ALONE); \
	CGO_ENABLED=0 $(GO) test -vet=off -timeout 20m $(SEQUENTIAL) $(filter-out $(ALONE),$(UNRACED)); \
	CGO_ENABLED=0 $(GO) test -vet=off -run $(LARGE) $(LARGEIN); \
	beside env CGO_ENABLED=1 $(GO) test -vet=off -race -cpu 1 -p 1 -timeout 20m -skip $(LARGE) ./sm/engine $$($(RACE) | grep ' testing/synctest' | cut -d' ' -f1); \
	CGO_ENABLED=1 $(GO) test -vet=off -race -timeout 20m $$($(RACE) | grep -v ' testing/synctest' | cut -d' ' -f1); \
	CGO_ENABLED=1 $(GO) test -vet=off -race -run $(RACED) $(ALONE); \
	for j in "$${all[@]}"; do wait $$j; done; \
	echo "== the lab and its scenarios, with nothing beside them"; \
	GO='$(GO)' lab/test.sh; \
	printf '== all tests in %d min %d s\n' $$((SECONDS/60)) $$((SECONDS%60))

AGAINST ?= networkd NetworkManager ifupdown opensm
ONLY    ?= .
RUNS    ?= 2
PAST    ?=
.PHONY: bench
bench: lab ## ibnetworkd and ibnetsm beside systemd-networkd, NetworkManager, ifupdown and opensm, as ratios (an hour; AGAINST="networkd opensm", ONLY='Hotplug|DriverRestart', RUNS=1: fewer; AGAINST="past networkd" PAST=FILE: beside another build)
	@IBNET_LAB=require CGO_ENABLED=0 $(GO) test -count=1 -v -timeout 5h -run '$(ONLY)' ./lab/bench -compare -against '$(AGAINST)' -past '$(abspath $(PAST))' -runs $(RUNS) | grep --line-buffered -vE '^(=== |PASS|ok )|--- (PASS|SKIP).*\(0\.0'

.PHONY: bench-sm
bench-sm: deps lab ## ibnetsm beside opensm on the same simulators and in one guest, as ratios (30 minutes)
	@$(GO) run ./lab/smbench up -sim ibsim
	@echo; $(GO) run ./lab/smbench up -sim ibsim -window 4 ft3-972
	@echo; $(GO) run ./lab/smbench up
	@echo; $(GO) run ./lab/smbench up -runs 2 ft3-5184
	@echo; $(GO) run ./lab/smbench sa
	@echo; $(GO) run ./lab/smbench sa -sim ibsim
	@echo; $(GO) run ./lab/smbench events -only 'cut|back' ft3-972
	@echo; $(GO) run ./lab/smbench events -runs 1
	@echo; $(GO) run ./lab/smbench routes
	@echo; $(GO) run ./lab/smbench scale
	@echo; IBNET_LAB=require CGO_ENABLED=0 $(GO) test -count=1 -v -timeout 30m -run 'TestManagers$$' ./lab/bench -managers | grep --line-buffered -vE '^ *(=== |--- |PASS|ok )'

# Scenarios that depend on the version of systemd.
TRIXIE ?= ^(TestPackage|TestFirstDay|TestBesideNetworkd|TestAdvertisedNameServers|InstalledHost)$$

.PHONY: test-long
test-long: test test-race test-trixie test-units-long test-sm-long bench-peers ## make test, and what was trimmed there

.PHONY: test-race
test-race: deps lab ## the lab with the race detector
	CGO_ENABLED=1 $(GO) test -race -count=1 -timeout 40m ./lab

.PHONY: test-trixie
test-trixie: deps ## installation, reload, upgrade and removal with the userland of Debian 13 (systemd 257)
	@IBNET_LAB_SUITE=trixie IBNET_LAB=require CGO_ENABLED=0 $(GO) test -v -count=1 -timeout 40m -run '$(TRIXIE)' ./lab/scenario | grep --line-buffered -E '^ *(---|ok|FAIL|PASS|panic)|_test.go:'

.PHONY: test-units-long
test-units-long: deps ## the parsers of unit files against the installed systemd, 100,000 inputs of each kind
	$(GO) test -count=1 -run TestSystemdIsTheJudge -v ./units -long

.PHONY: test-sm-long
test-sm-long: deps lab ## every check of osmtest, infiniband-diags and ibutils against opensm and ibnetsm, thousands of random subnets, fuzzing (half an hour)
	$(GO) test -count=1 -timeout 30m -run TestConformance\|TestSameInstant ./lab/smbench -long
	$(GO) test -count=1 -timeout 30m ./sm/engine -long
	CGO_ENABLED=1 $(GO) test -count=1 -race -cpu 1 -timeout 30m -run $(LARGE) $(LARGEIN)
	$(GO) test -count=1 -timeout 30m -run Degraded\|NeverWorse ./sm/route -long
	IBNET_LONG=1 IBNET_LAB=require CGO_ENABLED=0 $(GO) test -count=1 -timeout 30m -run '^TestSM|^TestSurvival$$' ./lab/scenario
	@$(MAKE) fuzz FUZZIN=sm

# One target for each part, each prints what it did.
ATTACKS    := attack-bus attack-sm attack-fuzz
ATTACKTIME ?= 30m
.PHONY: attack $(ATTACKS)
attack: ## attacks from outside: the daemon on a bus and the subnet manager for ATTACKTIME=30m each, every fuzz target for FUZZTIME=10m (hours)
	@for a in $(ATTACKS); do $(MAKE) $$a; done

attack-bus: ## of these, a user who sends the daemon everything that a bus forwards (root; ATTACKTIME=30m)
	@echo "== a hostile user on the daemon's bus for $(ATTACKTIME)"
	@IBNET_ATTACK=$(ATTACKTIME) CGO_ENABLED=0 $(GO) test -count=1 -timeout 0 -v -run '^TestAttack$$' ./cmd/ibnetworkd | grep --line-buffered -vE '^(=== |PASS|ok )'

attack-sm: ## of these, random subnets with hostile hosts and other managers, up to 100,000 sequences (ATTACKTIME=30m)
	@echo "== hostile hosts on simulated subnets for $(ATTACKTIME)"
	@IBNET_ATTACK=$(ATTACKTIME) CGO_ENABLED=0 $(GO) test -count=1 -timeout 0 -v -run '^TestAttack$$' ./sm/engine | grep --line-buffered -vE '^(=== |PASS|ok )'

attack-fuzz: ## of these, every fuzz target of the tree (FUZZTIME=10m each)
	@$(MAKE) fuzz FUZZTIME=$(or $(FUZZTIME),10m)

FUZZIN   ?= .
FUZZJOBS ?= $(shell nproc)
.PHONY: fuzz
fuzz: ## every fuzz target below FUZZIN=. for FUZZTIME=20s each, FUZZJOBS at once, a line for each
	@grep -rE '^func Fuzz' --include=*_test.go $(FUZZIN) | sed -E 's,^(.*)/[^/]*:func (Fuzz[A-Za-z0-9_]+).*,\1 \2,' | sort -u | \
	  CGO_ENABLED=0 xargs -P $(FUZZJOBS) -L1 bash -c 'out=$$($(GO) test -run "^$$" -fuzz "^$$1$$" -fuzztime $(or $(FUZZTIME),20s) -fuzzminimizetime 200x -parallel 1 "./$${0#./}" 2>&1) \
	    && echo "ok   $$0 $$1: $$(grep -o "execs: .*" <<<"$$out" | tail -1)" || { echo "FAIL $$0 $$1"; echo "$$out" | tail -40; exit 1; }'

.PHONY: test-short
test-short: ## what needs no lab kernel and no root
	$(GO) test -short ./...

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, govulncheck, import walls
	@bad=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l); [ -z "$$bad" ] || { echo "not gofmt-clean:"; echo "$$bad"; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	$(GO) test ./internal/walls
	@echo "govulncheck"; out=$$($(GO) run $(GOVULNCHECK) ./... 2>&1) && echo "$$out" | tail -3 || { \
	  if grep -qE 'no such host|connection refused|dial tcp|Forbidden|proxyconnect|timeout' <<<"$$out"; then echo "skipped: its database cannot be reached from here"; else echo "$$out"; exit 1; fi; }

.PHONY: lab
lab: ## build and cache what the lab needs (kernel, module, Debian guests)
	@$(LAB) build

.PHONY: lab-sanitize
lab-sanitize: lab ## the lab, the netlink and MAD packages and all scenarios on a kernel with KASAN, lockdep, kmemleak and refcount checks (an hour and a half)
	@$(LAB) build --sanitize
	@IBNET_LAB=require IBNET_LAB_SANITIZE=1 CGO_ENABLED=0 $(GO) test -p 1 -v -count=1 -timeout 5h ./lab ./lab/scenario ./internal/kernel ./sm/sa/kernel ./sm/transport/umad | grep --line-buffered -E '^ *(---|ok|FAIL|PASS|panic)|kernel of the guest|only the kernel|_test.go:'

.PHONY: lab-teardown
lab-teardown: lab ## the fabric unloaded a thousand times under IPoIB traffic and a subnet manager (up to 50 minutes)
	@IBNET_LAB=require IBNET_TEARDOWNS=1000 CGO_ENABLED=0 $(GO) test -count=1 -v -timeout 3h -run 'TestTeardown$$' ./lab

N ?= 50
.PHONY: test-flakes
test-flakes: lab ## the scenarios N times in a row (N=50), and what failed how often
	@$(LAB) flakes -n $(N)

.PHONY: bench-peers
bench-peers: lab ## what systemd-networkd, NetworkManager, ifupdown and opensm do on IPoIB: each statement of docs/peers.md, tried
	@IBNET_LAB=require CGO_ENABLED=0 $(GO) test -count=1 -v -timeout 90m -run 'TestPeers$$' ./lab/scenario -peers

.PHONY: package
package: build ## .deb and .rpm in build/packages (VERSION=1.2.3; KINDS=deb)
	@VERSION='$(VERSION)' BIN='$(BIN)' dist/package.sh $(KINDS)

.PHONY: install
install: build ## into $(DESTDIR)$(PREFIX)
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' BIN='$(BIN)' dist/install.sh
