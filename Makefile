# `make` alone lists the targets. `make check` is what continuous integration runs.

GO       ?= go
PKG      ?= ./...
FUZZTIME ?= 15s
PORT     ?= 6379
ARGS     ?=
ROUNDS   ?= 10
CLIENTS  ?= $(or $(TMPDIR),/tmp)/cairn-clients
BAR      ?= restart latency diskfull ttl idle failover return manual lag fullsync alive move reshard larger

.DEFAULT_GOAL := help
.PHONY: help build run up down test test-static race lint staticcheck fuzz bars crash-long partitions reshard reshard-crash reshard-failover clients sim sim-long mixed-long suites suites-cluster bench bench-micro check clean

help:        ## list the targets
	@grep -hE '^[a-z0-9-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/: .*## /\t/' | expand -t 18

build:       ## bin/cairn and bin/cairn-bench
	@mkdir -p bin
	$(GO) build -trimpath -o bin/ ./cmd/...

run: build   ## one node on PORT (6379) for this machine, with its files in ./data
	@mkdir -p data
	exec bin/cairn server --dir ./data --bind 127.0.0.1 -::1 --port $(PORT) $(ARGS)

up: build    ## a cluster of six nodes on ports 7000 to 7005, with its files in ./local-cluster; ARGS=--help explains it
	@bin/cairn up $(ARGS)

down:        ## stop that cluster; ARGS=--wipe removes its data, too
	@test -x bin/cairn || $(MAKE) build
	@bin/cairn down $(ARGS)

test:        ## all tests, invariants on, at most 6 minutes on 2 cores
	$(GO) test -tags invariants -timeout 12m $(PKG)

test-static: ## the same without cgo
	CGO_ENABLED=0 $(GO) test -tags invariants -timeout 12m $(PKG)

race:        ## the same under the race detector; PKG=./wal for one package
	$(GO) test -tags invariants -race -timeout 20m $(PKG)

lint: staticcheck ## format, vet, staticcheck, house rules, floor plan
	$(GO) test -count=1 ./tools/lint ./tools/floorplan

staticcheck: ## only staticcheck
	$(GO) run honnef.co/go/tools/cmd/staticcheck -tags invariants $(PKG)

fuzz:        ## each fuzz target for FUZZTIME (15s)
	@grep -rE --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]+' . | sort | while IFS=: read -r file func; do \
		name=$${func#func }; echo "$$(dirname "$$file") $$name"; \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
	done

bars: build  ## the promised figures on this machine; BAR=latency for one of them, ARGS=--help explains it
	@failed=; for bar in $(BAR); do echo "== $$bar"; $(GO) run ./tools/bars $$bar $(ARGS) || failed=1; done; test -z "$$failed"

crash-long: build ## 200 times kill -9 and restart, nothing acknowledged may be lost; ARGS="--rounds 1000"
	$(GO) run ./tools/crash kill --want-log-mb 300 $(ARGS)

sim:         ## clusters in virtual time, two thousand runs with faults, and as many of stale news; ARGS="-sim.seed=7 -sim.seeds=1 -sim.trace"
	$(GO) test ./cluster -timeout 60m -v -run 'TestSim($$|Stale$$|TwoClusters$$)' -sim.seeds=2000 -sim.seed=10000 $(ARGS)

sim-long:    ## a cluster of a thousand nodes in virtual time: half an hour, 10 GiB; ARGS="-sim.long.nodes=300"
	$(GO) test ./cluster -timeout 120m -v -run 'TestSimLong$$' -sim.long $(ARGS)

mixed-long:  ## ten rounds of failovers in a cluster of cairn and redis-server; ROUNDS=10
	$(GO) test -count=1 -timeout 30m ./cmd/cairn -run '^TestMixedCluster$$' -mixed.rounds $(ROUNDS)

partitions: build ## cuts between real nodes: minorities close, epochs never fall, tables agree; ARGS="--rounds 5", as root ARGS=--netns
	$(GO) run ./tools/chaos partitions $(ARGS)

reshard: build ## slots go back and forth under a go-redis client that sees nothing of it; ARGS="--rounds 5"
	$(GO) run ./tools/chaos reshard back --slots 2000 --keys 8000 $(ARGS)

reshard-crash: build ## SIGKILL of source, target, tool and both, at 25 moments each, and one fix makes all whole
	$(GO) run ./tools/chaos reshard kill --rounds 25 $(ARGS)

reshard-failover: build ## failovers in the middle of a move, and pings that come after the new owner's claim
	$(GO) run ./tools/chaos reshard failover --rounds 10 $(ARGS)
	$(GO) run ./tools/chaos reshard news --rounds 50 $(ARGS)

clients: build ## go-redis, redis-py and ioredis while slots move and nodes fail over, beside redis-server; needs python3-redis and npm
	npm install --no-audit --no-fund --prefix $(CLIENTS) ioredis@6
	NODE_PATH=$(CLIENTS)/node_modules $(GO) run ./tools/chaos reshard clients --slots 2000 --keys 2000 $(ARGS)

suites: build ## Redis's own test suites, the tests whose commands exist; REDIS_TREE=folder of a Redis source tree, ARGS="--mode standalone"
	@test -d "$(REDIS_TREE)/tests" || { echo "REDIS_TREE=\"$(REDIS_TREE)\" holds no folder tests: name a Redis source tree"; exit 2; }
	./tools/suites/run.sh "$(REDIS_TREE)" "$(CURDIR)/bin/cairn server" --skip tools/suites/skip-absent.txt --skip tools/suites/skip-different.txt $(ARGS)

suites-cluster: build ## Redis's own cluster suites; REDIS_TREE as in suites, ARGS="--show 05-slave-selection"
	@test -d "$(REDIS_TREE)/tests" || { echo "REDIS_TREE=\"$(REDIS_TREE)\" holds no folder tests: name a Redis source tree"; exit 2; }
	./tools/suites/cluster.sh "$(REDIS_TREE)" "$(CURDIR)/bin/cairn server" --skip tools/suites/skip-cluster.txt $(ARGS)

bench: build ## cairn beside redis-server, a table of ratios and a report; ARGS=--quick, "--rows all", --list, --help
	bin/cairn-bench $(ARGS)

bench-micro: ## micro benchmarks, output for benchstat
	$(GO) test -run '^$$' -bench . -benchmem -count 6 $(PKG)

check: lint test ## what continuous integration runs

clean:       ## remove what build and profiling made; ./data stays
	rm -rf bin
	rm -f *.test *.prof *.out
