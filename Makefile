# Every target does its own set-up: go.mod's modules by go, Debian packages by
# scripts/need where a target needs some (as root).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
GO ?= go
# Extra flags for go test, for instance GOTESTFLAGS=-v.
GOTESTFLAGS ?=
FUZZTIME ?= 10s
# Flags for fuzz, for instance FUZZ='-run ^qp' or FUZZ='-budget 90s'.
FUZZ ?=
# Flags for the interop runner, for instance INTEROP=-all or INTEROP='-kernel 6.12 -run rping -v'.
INTEROP ?=
# Flags for the conformance runner, for instance CONFORMANCE=-all or CONFORMANCE='-pairing mem -run TestAtomic'.
CONFORMANCE ?=
# Flags for bench-rxe, for instance BENCH_RXE='-cpus 2 -run WRITE' or BENCH_RXE=-here.
BENCH_RXE ?=
# Flags for bench, for instance BENCH='-quick' or BENCH='-v -run goodput/udp -rounds 1'.
BENCH ?=
# Flags for flood, for instance FLOOD='-quick' or FLOOD='-links udp -run REQ'.
FLOOD ?=
# How long soak runs, and its flags, for instance SOAK='-links raw -seed 7'.
DURATION ?= 2m
SOAK ?=
# How many packets hostilepeer sends, and what it makes them from.
PACKETS ?= 1e8
SEED ?= 1
# What netns runs: everything, or only what it builds in another way (frames).
NETNS ?=

# $(call run,PACKAGE): builds a program in bin and becomes it. go run does not pass SIGTERM on.
run = mkdir -p bin && $(GO) build -o bin/make-$(notdir $(1)) ./$(1) && exec bin/make-$(notdir $(1))

.PHONY: help demo cverbs programs dist test race foreign fuzz netns interop conformance hostilepeer flood soak bench bench-rxe microbench lint systems

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## two nodes in one process: connect, write, read, survive loss
	$(GO) run ./cmd/rocectl demo

dist: ## packages for amd64 and arm64, .tar.gz and .deb, in bin/dist
	scripts/dist

cverbs: ## libibverbs.so.1 and librdmacm.so.1 for unmodified RDMA programs, in bin/cverbs
	scripts/cverbs

programs: ## rdma-core's suite, perftest, UCX, Open MPI and others on bin/cverbs, and its own tests (root)
	@scripts/need $$(grep -v '^#' cverbs/programs/packages.txt) libibverbs-dev librdmacm-dev gcc libc6-dev
	$(GO) vet -C cverbs ./...
	ROCE_REQUIRE_NETNS=1 $(GO) test -C cverbs -timeout 20m $(GOTESTFLAGS) ./...

test: ## vet and every test that needs no privilege
	$(GO) vet ./...
	$(GO) test -vet=off $(GOTESTFLAGS) ./...
	$(GO) test -vet=off $(GOTESTFLAGS) -tags purego ./bth/...
	$(GO) vet -C metrics ./...
	$(GO) test -C metrics -vet=off $(GOTESTFLAGS) ./...

# Short: a race is in how calls meet, not in how many numbers a test tries. Test and lint have vetted everything.
race: ## the same tests under the race detector, where there are goroutines (scripts/raced)
	@scripts/need gcc libc6-dev
	CGO_ENABLED=1 $(GO) test -race -short -vet=off -timeout 20m $(GOTESTFLAGS) $$(scripts/raced)

# With 32 bits as they are, on an amd64 kernel. Big-endian is emulated: what reads or writes numbers, the engine with few
# seeds, the model of the connection manager with some. No file is for arm64 only, so its tests show that of bth.
foreign: ## tests of the protocol on other processors: 386, s390x, arm64 (root: qemu-user)
	@scripts/need qemu-user
	GOARCH=386 CGO_ENABLED=0 $(GO) test -vet=off -short $(GOTESTFLAGS) . ./internal/scenario ./bth/... ./mr ./cq ./cm ./qp ./link/...
	GOARCH=386 CGO_ENABLED=0 $(GO) test -vet=off $(GOTESTFLAGS) ./examples/o2iblnd/lnd ./examples/o2iblnd/node -run Huge # sizes that a peer names
	GOARCH=s390x CGO_ENABLED=0 $(GO) test -vet=off -short -exec qemu-s390x $(GOTESTFLAGS) ./bth/... ./mr ./cm
	GOARCH=s390x CGO_ENABLED=0 $(GO) test -vet=off -short -exec qemu-s390x $(GOTESTFLAGS) ./qp -run Sim -sim.seeds 10
	GOARCH=arm64 CGO_ENABLED=0 $(GO) test -vet=off -short -trimpath -exec qemu-aarch64 $(GOTESTFLAGS) ./bth/...

fuzz: ## every fuzz target for FUZZTIME (10s), two at a time
	$(call run,internal/fuzz) -time $(FUZZTIME) $(FUZZ)

hostilepeer: ## PACKETS (1e8) packets of a hostile peer and of strangers, in the process
	$(GO) test ./interop/hostilepeer -run TestHostilePeer -hostile.packets $(PACKETS) -hostile.seed $(SEED) -timeout 0 -v

netns: ## tests on real interfaces in network namespaces (root)
	scripts/netns $(NETNS)

interop: ## rocectl against Linux rxe 6.1, 6.12 and 7 in QEMU (root)
	$(call run,interop) $(INTEROP)

conformance: ## tests named after rdma-core's: in process, on raw sockets, against rxe (root)
	$(call run,interop/conformance) $(CONFORMANCE)

flood: ## what a working connection notices of floods, on udp, raw and xdp (root)
	@scripts/need iproute2
	$(call run,bench/flood) $(FLOOD)

soak: ## everything for DURATION (2m), on a bad network, with peers that are killed (root)
	@scripts/need iproute2
	$(call run,interop/soak) -duration $(DURATION) $(SOAK)

bench: ## roce against TCP and against bare packets on udp, xdp and raw, under ten minutes (root)
	@scripts/need iproute2 iperf3 perftest ibverbs-utils ucx-utils openmpi-bin libopenmpi-dev
	$(call run,bench) $(BENCH)

bench-rxe: ## roce beside rxe inside one virtual machine, or -here, perftest's tests (root)
	$(call run,bench/rxe) $(BENCH_RXE)

microbench: ## benchmarks of every package
	$(GO) test -run '^$$' -bench . -benchmem ./...

lint: ## gofmt, vet, also for other systems, staticcheck, nothing unreached, tidy modules
	@files=$$(gofmt -l .); [[ -z $$files ]] || { echo "gofmt would change:"; echo "$$files"; exit 1; }
	$(GO) vet ./...
	$(GO) build -C tools -o ../bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	bin/staticcheck ./...
	$(GO) vet -C tools ./...
	$(GO) build -C tools -o ../bin/unreached ./unreached
	bin/unreached tools/unreached/tests.txt
	$(GO) mod tidy -diff
	$(GO) vet -C bench/xdpcompare ./...
	cd metrics && $(GO) mod tidy -diff
	$(GO) vet -C metrics ./...
	cd metrics && ../bin/staticcheck ./...
	@scripts/need libibverbs-dev librdmacm-dev gcc libc6-dev
	cd cverbs && $(GO) mod tidy -diff
	$(GO) vet -C cverbs ./...
	cd cverbs && ../bin/staticcheck ./...
	$(GO) build -C tools -o ../bin/systems ./systems
	bin/systems linux/386 linux/arm64 darwin/arm64 windows/amd64 # unreached has read freebsd

systems: ## every program for every system, compiled and linked; lint only vets them
	for s in linux/386 linux/arm64 darwin/arm64 freebsd/amd64 windows/amd64; do CGO_ENABLED=0 GOOS=$${s%/*} GOARCH=$${s#*/} $(GO) build ./...; done
