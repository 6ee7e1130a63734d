# make help lists the targets. Each step of CI (.ci/run) is one of them.

BIN     := bin
TOOLS   := $(BIN)/tools
# Stamps commit and version into the binary, where there is a git that agrees.
BUILDVCS = $(shell git rev-parse HEAD >/dev/null 2>&1 && echo true || echo false)

# The counts of all test steps. Who sets this, as .ci/run does, adds them up.
RESULTS ?= $(BIN)/test-results
COUNT := RESULTS=$(abspath $(RESULTS)) $(CURDIR)/hack/count
# A count, not a duration: on a busy machine the end of a duration is taken for a
# failure before Go 1.27 (https://go.dev/issue/75804).
FUZZTIME ?= 20000x

GOLANGCI_LINT := $(CURDIR)/$(TOOLS)/golangci-lint
GOFUMPT       := $(CURDIR)/$(TOOLS)/gofumpt
GO_SOURCES     = $(shell find . -name '*.go' -not -path '*/testdata/*' -not -path './$(BIN)/*')

# Expanded when a recipe runs, which is after setup may have installed gcc.
RACE     = $(shell command -v gcc >/dev/null 2>&1 && echo -race)
PACKAGES = $(shell go list ./... | grep -v -e /test/crash$$ -e /test/faults$$ -e /test/cluster -e /test/controlplane$$ -e /test/node -e /test/e2e -e /test/escape -e /test/storage$$)

# mkfs and losetup are not in the PATH of an ordinary Debian user.
export PATH := $(CURDIR)/$(TOOLS):$(PATH):/usr/sbin:/sbin
# Without this every test binary built with -race sleeps for a second at its end.
export GORACE ?= atexit_sleep_ms=0
# What tests drive from outside, where they do not run it in-process.
export FLEXDRIVER_BINARY := $(CURDIR)/$(BIN)/flexdriver
export FLEX2CSI_BINARY   := $(CURDIR)/$(BIN)/flex2csi
# CSI drivers that are modules of their own.
BACKENDS := gcepd mock
export FLEX_PROGRAMS := $(CURDIR)/$(BIN)/programs

# What is compiled in one way is compiled once: for binaries, linters, tests, and
# the parts of Kubernetes that tests link. Only the race detector and fuzzing
# compile everything once more. Without its traces gRPC links no template: a fifth
# of flex2csi.
export CGO_ENABLED := 0
export GOFLAGS     := -trimpath -tags=grpcnotrace

# The steps share the machine's two cores, its loop devices and one results file.
.NOTPARALLEL:

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  \033[1m%-15s\033[0m %s\n", $$1, $$2 } /^## / { printf "\n%s\n", substr($$0, 4) }' $(firstword $(MAKEFILE_LIST))

## Use

.PHONY: build
build: ## build bin/flexdriver and bin/flex2csi, static and stripped
	@mkdir -p $(BIN)
	go build -buildvcs=$(BUILDVCS) -ldflags '-s -w' -o $(BIN)/ ./cmd/...

# The image that install/ names. VERSION is its tag; what the programs say of
# their version is what git says, and is also on a label.
IMAGE     ?= ghcr.io/flex2csi/flex2csi
VERSION   ?= v0.1.0
PLATFORMS ?= linux/amd64,linux/arm64
ARCHIVE   ?= $(BIN)/flex2csi-image.tar
comma     := ,

.PHONY: image
image: $(BIN)/image ## write the container image to bin/flex2csi-image.tar, an OCI archive
	@for platform in $(subst $(comma), ,$(PLATFORMS)); do \
		echo "go build for $$platform"; \
		GOOS=$${platform%/*} GOARCH=$${platform#*/} go build -buildvcs=$(BUILDVCS) -ldflags '-s -w' -o $(BIN)/release/$$platform/ ./cmd/... || exit; \
	done
	@program=$(BIN)/release/$(firstword $(subst $(comma), ,$(PLATFORMS)))/flex2csi; \
	$(BIN)/image -o $(ARCHIVE) --name $(IMAGE):$(VERSION) --platform $(PLATFORMS) \
		--file '/flex2csi=$(BIN)/release/{os}/{arch}/flex2csi' --file '/flexdriver=$(BIN)/release/{os}/{arch}/flexdriver' \
		--sbom '$(dir $(ARCHIVE))flex2csi-{os}-{arch}.cdx.json' --user 65532:65532 --entrypoint /flex2csi \
		--label org.opencontainers.image.title=flex2csi \
		--label org.opencontainers.image.description='Runs FlexVolumes on CSI drivers' \
		--label org.opencontainers.image.source=https://github.com/flex2csi/flex2csi \
		--label org.opencontainers.image.licenses=Apache-2.0 \
		--label org.opencontainers.image.version="$$(go version -m $$program | awk '$$1 == "mod" { print $$3 }')" \
		--label org.opencontainers.image.revision="$$(go version -m $$program | sed -n 's/.*vcs.revision=//p')"

# KEY is an SSH key that signs, UNRELEASED=1 takes notes that have no version yet.
.PHONY: release
release: ## make what users download of VERSION in bin/release/VERSION, from a clean clone (CONTRIBUTING.md)
	@cd hack/release && go run . --version $(VERSION) --source $(CURDIR) --output $(CURDIR)/$(BIN)/release/$(VERSION) \
		$(if $(KEY),--key '$(abspath $(KEY))') $(if $(UNRELEASED),--unreleased)

.PHONY: demo
demo: build ## show a volume's whole life on this machine, by itself and over CSI, as root
	@hack/setup demo
	go run ./test/demo

.PHONY: demo-migrate
demo-migrate: build e2e-images ## show a FlexVolume become a CSI volume under a running pod, on a node of its own, as root
	go run ./test/demo-migrate

# asciinema records, svg-term draws. Of a commit, so that the version in it is one.
SVG_TERM := svg-term-cli@2.1.1

.PHONY: recording
recording: build e2e-images ## record make demo-migrate for the README, in docs/demo.svg
	@command -v asciinema >/dev/null && command -v npm >/dev/null || { echo "recording: needs asciinema and npm: apt-get install asciinema npm" >&2; exit 1; }
	@git diff --quiet HEAD || { echo "recording: commit the changes first, or the version has +dirty" >&2; exit 1; }
	go build -o $(BIN)/demo-migrate ./test/demo-migrate
	asciinema rec --quiet --overwrite --idle-time-limit 2 --cols 104 --rows 32 --command '$(BIN)/demo-migrate; sleep 2' $(BIN)/demo.cast
	npm install --silent --no-save --prefix $(BIN)/recording $(SVG_TERM)
	$(BIN)/recording/node_modules/.bin/svg-term --in $(BIN)/demo.cast --out docs/demo.svg --no-cursor --window

# What a commit makes faster or slower, benchstat tells against the stored figures. They are
# of an idle machine; who changes speed stores the new ones: cp bin/bench.txt test/bench/figures.txt.
.PHONY: bench
bench: build $(TOOLS)/benchstat ## measure start-up, mounting and throughput against an empty program, and against the stored figures
	go run ./test/bench --save $(BIN)/bench.txt --commit "$$(git describe --always --dirty)"
	@head -n 1 test/bench/figures.txt
	@$(TOOLS)/benchstat before=test/bench/figures.txt now=$(BIN)/bench.txt

.PHONY: bench-plan
bench-plan: ## measure migrate plan and map of 100, 1,000 and 10,000 volumes, and what apply needs for 10,000
	go test -count=1 -timeout 20m -run '^$$' -bench '^Benchmark(Plan|Report)$$' -benchtime 3x ./internal/migrate ./internal/assess
	go test -count=1 -timeout 20m -run '^$$' -bench '^BenchmarkApply$$' -benchtime 1x ./internal/migrate

.PHONY: bench-cluster
bench-cluster: programs control-plane ## measure attaching against kube-controller-manager's own way, as root
	go test -count=1 -timeout 20m -run '^$$' -bench '^BenchmarkAttach(ments)?$$' -benchtime 31x ./test/cluster

# A node to play with (test/node/README.md): KUBERNETES=1.28 is another one, of that
# release.
RELEASE = $(firstword $(KUBERNETES))
NODE    = $(BIN)/node --dir $(or $(TMPDIR),/tmp)/flex2csi-node-$(RELEASE) --kubernetes $(RELEASE)

.PHONY: node-up
node-up: $(BIN)/node e2e-images ## start a Kubernetes of one node, as root, with all images to play with
	@test $(RELEASE) = $(NEWEST) || $(MAKE) --no-print-directory node-programs-$(RELEASE)
	@$(NODE) up $(FLEX_IMAGES)/*.tar
	@echo "Now: make node-shell, or make node-kubectl ARGS='apply -k install/overlays/kubeadm'. The end: make node-down."

.PHONY: node-shell
node-shell: $(BIN)/node ## a shell inside of the node, with kubectl in its PATH
	@$(NODE) shell

.PHONY: node-kubectl
node-kubectl: $(BIN)/node
	@$(NODE) kubectl $(ARGS)

.PHONY: node-down
node-down: $(BIN)/node ## end the node
	@$(NODE) down

.PHONY: $(BIN)/node
$(BIN)/node:
	@mkdir -p $(BIN)
	@go build -o $@ ./test/node/cmd/node

.PHONY: site
site: manual $(BIN)/site-modules/node_modules ## make the documents a site in bin/site, and look at it in a headless browser
	cd site && npm run --silent build && npm run --silent check

# In bin, where no test looks for our documents.
$(BIN)/site-modules/node_modules: site/package-lock.json
	@command -v npm >/dev/null && command -v chromium >/dev/null || { echo "site: needs npm and chromium: apt-get install nodejs npm chromium" >&2; exit 1; }
	mkdir -p $(@D) && cp site/package.json site/package-lock.json $(@D)
	cd $(@D) && npm install --no-audit --no-fund && touch node_modules
	ln -sfn ../$@ site/node_modules

## Test

.PHONY: test
test: setup reset lint-light test-unit test-contract-1.37 test-backends test-sanity test-install test-crash test-faults test-escape ## all tests but those of make full; as an ordinary user those that need root are skipped by name
	@test "$(origin RESULTS)" = "command line" || $(COUNT) total

.PHONY: test-unit
test-unit: build $(TOOLS)/gotestsum ## unit tests, scripts and real mounts, with the race detector
	@CGO_ENABLED=$(if $(RACE),1,0) $(COUNT) run unit -timeout 30m $(RACE) $(PACKAGES)

.PHONY: test-rootless
test-rootless: build $(TOOLS)/gotestsum ## as root: the unit tests once more, as user nobody, without the race detector
	@FLEX_TEST_REQUIRE=mount $(COUNT) run rootless -timeout 20m -exec $(CURDIR)/hack/as-nobody $(filter-out %/hack,$(PACKAGES))

.PHONY: test-contract
test-contract: test-contract-1.37 test-contract-1.36 test-contract-1.24 ## drive the binary with Kubernetes' own FlexVolume code, three versions

.PHONY: test-contract-1.37
test-contract-1.37: programs $(TOOLS)/gotestsum
	@cd test/contract && $(COUNT) run contract-1.37 -timeout 20m ./...

.PHONY: test-contract-1.36
test-contract-1.36: programs $(TOOLS)/gotestsum
	@cd test/contract && $(COUNT) run contract-1.36 -timeout 20m -modfile=go.k8s136.mod ./...

.PHONY: test-contract-1.24
test-contract-1.24: programs $(TOOLS)/gotestsum
	@cd test/contract && $(COUNT) run contract-1.24 -timeout 20m -modfile=go.k8s124.mod -tags k8s124 -ldflags=-checklinkname=0 ./...

# The daemon and the CSI drivers that it is tested with.
.PHONY: programs
programs: build
	@mkdir -p $(FLEX_PROGRAMS)
	@ln -sf ../flex2csi $(FLEX_PROGRAMS)/
	go build -o $(FLEX_PROGRAMS)/ ./test/csidriver/cmd/csidriver ./test/fusedriver/cmd/fusedriver
	@for backend in $(BACKENDS); do echo "go build in test/$$backend"; \
		(cd test/$$backend && go build -ldflags '-s -w' -o $(FLEX_PROGRAMS)/ .) || exit; \
	done

.PHONY: test-backends
test-backends: build $(TOOLS)/gotestsum ## the daemon with CSI drivers that are not ours: GCE PD on loop devices, Kubernetes' mock
	@status=0; for backend in $(BACKENDS); do \
		(cd test/$$backend && $(COUNT) run $$backend ./...) || status=1; \
	done; exit $$status

.PHONY: test-sanity
test-sanity: build $(TOOLS)/gotestsum ## csi-sanity against the CSI driver that the tests use
	@cd test/sanity && $(COUNT) run sanity ./...

# go test does not see that something has changed which is not in its module.
.PHONY: test-install
test-install: $(TOOLS)/gotestsum ## image and manifests: kustomize and Helm agree, for each distribution; the image is reproducible
	@cd hack/image && $(COUNT) run image ./...
	@cd test/install && $(COUNT) run install -count=1 . ./schema

.PHONY: test-release
test-release: $(TOOLS)/gotestsum ## what users download is reproducible, for each platform
	@cd hack/release && $(COUNT) run release -count=1 ./...

# A control plane of Kubernetes.
CONTROL_PLANE := $(foreach program,kube-apiserver kube-controller-manager kube-scheduler,k8s.io/kubernetes/cmd/$(program)) \
	github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher
KUBERNETES_VERSION = $(shell cd test/kubernetes && go list $(MODFILE) -m -f '{{.Version}}' k8s.io/kubernetes)
KUBERNETES_STAMP   = $(foreach package,k8s.io/component-base/version k8s.io/client-go/pkg/version, \
	-X $(package).gitVersion=$(KUBERNETES_VERSION) -X $(package).gitMajor=1 -X $(package).gitMinor=$(word 2,$(subst ., ,$(KUBERNETES_VERSION))))

.PHONY: control-plane
control-plane:
	@mkdir -p $(FLEX_PROGRAMS)
	cd test/kubernetes && go build -ldflags '-s -w $(KUBERNETES_STAMP)' -o $(FLEX_PROGRAMS)/ $(CONTROL_PLANE)
	cd test/kubernetes && go build -ldflags '-s -w' -o $(FLEX_PROGRAMS)/etcd go.etcd.io/etcd/server/v3

# A node: the control plane, a kubelet and a container runtime, as test/node
# starts them. What is not of Go comes unpacked out of Debian's packages.
NODE_PROGRAMS    := $(foreach program,kubelet kubectl,k8s.io/kubernetes/cmd/$(program))
CONTAINERD_STAMP  = -X github.com/containerd/containerd/v2/version.Version=$(shell cd test/containerd && go list -m -f '{{.Version}}' github.com/containerd/containerd/v2)

.PHONY: node-programs
node-programs: control-plane $(FLEX_PROGRAMS)/pause.tar ## build all that a node of Kubernetes needs
	cd test/kubernetes && go build -ldflags '-s -w $(KUBERNETES_STAMP)' -o $(FLEX_PROGRAMS)/ $(NODE_PROGRAMS)
	cd test/containerd && go build -tags no_btrfs,no_devmapper,no_zfs -ldflags '-s -w $(CONTAINERD_STAMP)' -o $(FLEX_PROGRAMS)/ tool
	hack/node-debs $(FLEX_PROGRAMS)

# node-programs-1.28 builds those of another release that are its own: control plane and kubelet. The
# release needs a go.k8s128.mod, which hack/kubernetes-release writes. What old releases depend on links
# to names in the Go runtime that it does not offer any more (-checklinkname=0).
NEWEST := 1.37
node-programs-%: MODFILE = -modfile=go.k8s$(subst .,,$*).mod
node-programs-%:
	@mkdir -p $(FLEX_PROGRAMS)-$*
	cd test/kubernetes && go build $(MODFILE) -ldflags '-checklinkname=0 -s -w $(KUBERNETES_STAMP)' -o $(FLEX_PROGRAMS)-$*/ $(filter k8s.io/%,$(CONTROL_PLANE)) k8s.io/kubernetes/cmd/kubelet

$(FLEX_PROGRAMS)/pause.tar: $(BIN)/image $(wildcard test/node/pause/*.go)
	@mkdir -p $(FLEX_PROGRAMS)
	go build -ldflags '-s -w' -o $(FLEX_PROGRAMS)/pause ./test/node/pause
	$(BIN)/image -o $@ --name localhost/pause:node --file /pause=$(FLEX_PROGRAMS)/pause:0755 --entrypoint /pause

.PHONY: test-node
test-node: node-programs $(TOOLS)/gotestsum ## the node itself: pods, restarts, a reboot, what is left
	@$(COUNT) run node -count=1 -timeout 20m ./test/node/...

# Images of what the scenarios of test/e2e run, beside the project's own. mkfs and
# libraries come from /usr of the node, which is the machine's.
export FLEX_IMAGES := $(CURDIR)/$(BIN)/images
ROOT_LINKS := $(foreach dir,bin sbin lib lib64,--link /$(dir)=usr/$(dir))

.PHONY: e2e-images
e2e-images: setup programs node-programs $(BIN)/image
	@mkdir -p $(FLEX_IMAGES)
	$(MAKE) image PLATFORMS=linux/$$(go env GOARCH) ARCHIVE=$(FLEX_IMAGES)/flex2csi.tar
	$(BIN)/image -o $(FLEX_IMAGES)/busybox.tar --name localhost/busybox:e2e --env PATH=/bin \
		--file /bin/busybox=$(FLEX_PROGRAMS)/busybox:0755 \
		$$($(FLEX_PROGRAMS)/busybox --list | sed '/^busybox$$/d; s|.*|--link /bin/&=busybox|')
	@for program in csidriver csi-attacher; do \
		$(BIN)/image -o $(FLEX_IMAGES)/$$program.tar --name localhost/$$program:e2e --entrypoint /$$program --user 0 \
			--file /$$program=$(FLEX_PROGRAMS)/$$program:0755 $(ROOT_LINKS) || exit; \
	done
	@mkdir -p $(FLEX_IMAGES)/large
	$(BIN)/image -o $(FLEX_IMAGES)/large/gcepd.tar --name localhost/gcepd:e2e --entrypoint /gcepd --user 0 \
		--file /gcepd=$(FLEX_PROGRAMS)/gcepd:0755 $(ROOT_LINKS)
	go build -buildvcs=$(BUILDVCS) -ldflags '-s -w -buildid=next' -o $(BIN)/next/ ./cmd/...
	$(BIN)/image -o $(FLEX_IMAGES)/flex2csi-next.tar --name $(IMAGE):next --user 65532:65532 --entrypoint /flex2csi \
		--file /flex2csi=$(BIN)/next/flex2csi:0755 --file /flexdriver=$(BIN)/next/flexdriver:0755

# KUBERNETES is the releases, SCENARIO a regular expression of names. The nodes of
# two releases do not see each other, and wait for most of their time, so two run
# side by side. To fill the node with 200 pods, and to migrate 2,000 volumes, is for the first one.
KUBERNETES ?= 1.37 1.36
.PHONY: e2e
e2e: e2e-images $(patsubst %,node-programs-%,$(filter-out $(NEWEST),$(KUBERNETES))) $(TOOLS)/gotestsum ## install on a real node and run all scenarios, two versions; or SCENARIO=regexp, KUBERNETES="1.24 1.28"
	@mkdir -p $(BIN)/e2e; rm -rf $(KUBERNETES:%=$(BIN)/e2e/%)
	@printf '%s\n' $(KUBERNETES) | xargs -P 2 -I {} sh -c 'KUBERNETES={} \
		E2E_PODS=$${E2E_PODS:-$$([ {} = $(firstword $(KUBERNETES)) ] && echo 200 || echo 50)} \
		E2E_JOB=$${E2E_JOB:-$$([ {} = $(firstword $(KUBERNETES)) ] && echo 2000 || echo 200)} \
		$(COUNT) run e2e-{} -count=1 -timeout 150m -parallel 8 ./test/e2e >$(BIN)/e2e/{}.log 2>&1' || status=1; \
	for version in $(KUBERNETES); do cat $(BIN)/e2e/$$version.log $(BIN)/e2e/$$version/table.txt; done; exit $${status:-0}

# The releases that are tested (internal/distribution, Tested).
RELEASES := 1.24 1.28 1.32 1.34 1.36 1.37
.PHONY: e2e-releases
e2e-releases: ## the same on all releases that are tested: three hours and a half
	@$(MAKE) e2e KUBERNETES='$(RELEASES)'

.PHONY: test-manifests
test-manifests: control-plane $(patsubst %,node-programs-%,$(filter-out $(NEWEST),$(RELEASES))) $(TOOLS)/gotestsum ## the API server of each release takes the manifests for it, strictly
	@status=0; for version in $(RELEASES); do \
		(cd test/install && KUBERNETES=$$version $(COUNT) run manifests-$$version -count=1 ./server) || status=1; done; exit $$status

# Each on a node of its own, since what is broken would disturb the others.
.PHONY: e2e-sabotage
e2e-sabotage: e2e-images $(TOOLS)/gotestsum ## break one thing after the other on purpose, and see its scenario fail; or SABOTAGE=regexp
	go test -c -o $(BIN)/e2e.test ./test/e2e
	@KUBERNETES=$(firstword $(KUBERNETES)) SABOTAGE='$(SABOTAGE)' $(COUNT) run e2e-sabotage -count=1 -timeout 3h ./test/e2e/sabotage

# How much longer pods take to start than those with a volume of CSI.
ROUNDS ?= 40
.PHONY: bench-e2e
bench-e2e: e2e-images ## measure a pod's start against one with a native CSI volume, ROUNDS (40) times, and 200 at once
	@KUBERNETES=$(firstword $(KUBERNETES)) SCENARIO='^start-time$$' E2E_ROUNDS=$(ROUNDS) E2E_COLD=200 E2E_COLD_ROUNDS=3 go test -count=1 -timeout 3h ./test/e2e; \
		status=$$?; cat $(BIN)/e2e/$(firstword $(KUBERNETES))/table.txt; exit $$status

.PHONY: test-cluster
test-cluster: setup programs control-plane $(TOOLS)/gotestsum ## the daemon in a real control plane: attachments, RBAC, outages
	@status=0; $(COUNT) run cluster -count=1 -timeout 40m ./test/controlplane/... ./test/cluster/... || status=1; \
		(cd test/install && $(COUNT) run manifests -count=1 ./server) || status=1; exit $$status

.PHONY: test-crash
test-crash: build $(TOOLS)/gotestsum ## kill the driver after each system call and look what is left
	@$(COUNT) run crash -timeout 20m ./test/crash/...

.PHONY: test-crash-all
test-crash-all: build $(TOOLS)/gotestsum ## the same without sampling: every system call, every write of every mkfs and fsck (hours)
	@CRASH_ALL=1 $(COUNT) run crash-all -timeout 8h ./test/crash/...

.PHONY: test-faults
test-faults: build $(TOOLS)/gotestsum ## let everything around the bridge fail, for a minute
	@$(COUNT) run faults -count=1 -timeout 20m ./test/faults/...

# ESCAPE_COUNT=100000 takes half an hour; ESCAPE_SEED is another campaign.
ESCAPE_COUNT ?= 3000
.PHONY: test-escape
test-escape: export ESCAPE_TABLE := $(CURDIR)/$(BIN)/escape.txt
test-escape: build $(TOOLS)/gotestsum ## attack flexdriver with ESCAPE_COUNT (3000) hostile volumes, and watch what it touches
	@rm -f $(ESCAPE_TABLE)
	@ESCAPE_COUNT=$(ESCAPE_COUNT) $(COUNT) run escape -count=1 -timeout $$((1200 + $(ESCAPE_COUNT) / 5))s -run '^Test(Escape|EndsMeanwhile|Source)$$' ./test/escape/...; \
		status=$$?; cat $(ESCAPE_TABLE) 2>/dev/null; exit $$status

.PHONY: test-escape-sabotage
test-escape-sabotage: $(TOOLS)/gotestsum ## take one check after the other out of flexdriver, and see the attack find it; or SABOTAGE=regexp
	@SABOTAGE='$(SABOTAGE)' $(COUNT) run escape-sabotage -count=1 -timeout 2h -run '^TestSabotage$$' ./test/escape/sabotage

# Guests with servers of their own; their root file system is made once, into the user's cache.
# CASE and SKIP are regular expressions of tests, DRIVERS a folder with executables of real CSI drivers.
CASE ?= .
.PHONY: test-storage
test-storage: setup build $(TOOLS)/gotestsum ## real NFS, SMB, LVM and iSCSI, in guests with a kernel of their own; or CASE=regexp DRIVERS=folder
	@FLEX_STORAGE_ROOT=$$(hack/storage-root) DRIVERS=$(abspath $(DRIVERS)) \
		$(COUNT) run storage -count=1 -timeout 2h -run '$(CASE)' -skip '$(CEPH)$(if $(SKIP),|$(SKIP))' ./test/storage

# Without the tests that wait for servers which are down, and those that cut the power.
.PHONY: test-storage-fast
test-storage-fast: SKIP = Outage|PowerOff
test-storage-fast: test-storage ## the part of test-storage for CI: what does not wait for servers that are down

# What needs the root file system with Ceph, and takes minutes to have a cluster.
CEPH := ^TestRBD
.PHONY: test-ceph
test-ceph: setup build $(TOOLS)/gotestsum ## the same for Ceph; or CASE=regexp DRIVERS=folder
	@FLEX_STORAGE_ROOT=$$(hack/storage-root full) DRIVERS=$(abspath $(DRIVERS)) \
		$(COUNT) run ceph -count=1 -timeout 4h -run '$(or $(filter-out .,$(CASE)),$(CEPH))' ./test/storage

# Power cuts at random moments: CUTS of each test, from SEED.
CUTS ?= 200
.PHONY: power
power: setup build ## take the power of a node and its storage CUTS (200) times; or SEED, CASE=Bridge
	FLEX_STORAGE_ROOT=$$(hack/storage-root) DRIVERS=$(abspath $(DRIVERS)) FLEX_POWER_CUTS=$(CUTS) FLEX_POWER_SEED=$(SEED) \
		go test -count=1 -timeout 24h -v -parallel 1 -run '^TestPowerOff$(filter-out .,$(CASE))' ./test/storage

# The long campaign: COUNT life cycles or DURATION, whichever comes first.
DURATION ?= 25m
.PHONY: faults
faults: setup build ## the same for DURATION (25m) or COUNT life cycles, from SEED
	FAULTS_DURATION=$(DURATION) FAULTS_COUNT=$(COUNT) FAULTS_SEED=$(SEED) go test -count=1 -timeout 24h -v -run '^TestCampaign$$' ./test/faults
	FAULTS_ALL=1 go test -count=1 -timeout 24h -v -run '^TestKillDaemon$$' ./test/faults

.PHONY: table
table: programs control-plane ## each request of each migration fails in each way, of which test-unit and test-cluster have samples
	GOGC=400 FLEX_TABLE=all go test -count=1 -timeout 1h -run '^TestTable$$' ./internal/migrate
	FLEX_TABLE=all go test -count=1 -timeout 2h -run '^TestStruck$$' ./test/cluster/migrate

.PHONY: model
model: ## the model of the life of a volume, with wider bounds than in test-unit (an hour, and a few GB)
	FLEX_MODEL=deep go test -count=1 -timeout 24h -v -run '^TestModel$$' ./internal/lifecycle

.PHONY: fuzz
fuzz: $(TOOLS)/gotestsum ## each fuzz target for FUZZTIME (20000x)
	@status=0; for target in $$(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z]+' cmd internal pkg | sed 's|/[^/]*:func |:|'); do \
		$(COUNT) run fuzz-$${target#*:} -run '^$$' -fuzz "^$${target#*:}$$" -fuzztime=$(FUZZTIME) -fuzzminimizetime=10x ./$${target%:*} || status=1; \
	done; exit $$status

# The code that guards data, and the tests that run without a control plane.
MUTANTS := ./internal/lifecycle ./internal/bridge ./internal/kube ./internal/volstate ./internal/controller \
	./internal/migrate/... ./internal/allow ./internal/local ./pkg/mounter

.PHONY: mutants
mutants: build ## make the code that guards data wrong at one place at a time, and list where no test notices; hours, or BUDGET=5m of it
	go run ./hack/mutants -results $(BIN)/mutants.json $(if $(BUDGET),-budget $(BUDGET)) -seed "$$(git rev-parse HEAD)" $(MUTANTS)

.PHONY: ci
ci: setup reset verify test ## what .ci/run runs: half an hour on two cores with cold caches

.PHONY: full
full: ci lint lint-selftest lint-modules test-rootless test-release fuzz test-contract-1.36 test-contract-1.24 test-cluster test-manifests test-node e2e-releases ## all there is but the long campaigns: before a release

.PHONY: reset
reset:
	@rm -f $(RESULTS)

## Look after the code

.PHONY: setup
setup: ## install the Debian packages that tests need (as root), or name what is missing
	@hack/setup

.PHONY: fmt
fmt: $(TOOLS)/golangci-lint $(TOOLS)/gofumpt ## format all Go files
	@$(GOFUMPT) -w $(GO_SOURCES)
	@$(GOLANGCI_LINT) fmt

.PHONY: lint-light
lint-light: ## gofmt, go vet and the words, which need nothing to be built first
	@bad=$$(gofmt -l $(GO_SOURCES)) && test -z "$$bad" || { echo "not formatted, run make fmt: $$bad"; exit 1; }
	go vet ./...
	go run ./hack/words

.PHONY: lint
lint: lint-light $(TOOLS)/golangci-lint ## all linters with the project's own rules
	$(GOLANGCI_LINT) run

.PHONY: lint-modules
lint-modules: $(TOOLS)/golangci-lint ## the same on the modules of tests, which link half of Kubernetes
	@status=0; for module in hack/image/ hack/release/ $(dir $(wildcard test/*/go.mod)); do \
		echo "golangci-lint run in $$module"; (cd $$module && $(GOLANGCI_LINT) run) || status=1; \
	done; exit $$status

.PHONY: lint-selftest
lint-selftest: $(TOOLS)/golangci-lint $(TOOLS)/gotestsum ## prove that the project's own lint rules fire
	@GOLANGCI_LINT=$(GOLANGCI_LINT) $(COUNT) run lint-selftest -count=1 -tags lintselftest ./hack/lintrules

.PHONY: deps
deps: ## update the golden list of what flexdriver links
	go test ./cmd/flexdriver -run '^TestDeps$$' -update

.PHONY: docs
docs: ## make the tables and schemas in documents and manifests that the code has
	go test ./hack/manual ./hack/manifests ./internal/lifecycle ./internal/migrate ./internal/distribution -run '^(TestDistributions|TestLifecycle|TestManifests|TestChecks|TestCapabilities)$$' -update
	cd test/install && go test ./schema -run '^TestSchemas$$' -update

# They are in no commit: the programs say it with --help, and releases and the site have them.
.PHONY: manual
manual: ## make the pages of commands in docs/reference, and man/, from the programs' own flags and from docs/
	go test ./hack/manual ./cmd/flexdriver ./cmd/flex2csi -run '^(TestManual|TestDocuments)$$' -update

.PHONY: verify
verify: $(TOOLS)/gofumpt ## go.mod is tidy, all files are formatted, and the sabotages of e2e fit the source
	go mod tidy -diff
	go test -run '^TestSource$$' ./test/e2e/sabotage
	@bad=$$($(GOFUMPT) -l $(GO_SOURCES)) && test -z "$$bad" || { echo "not formatted, run make fmt: $$bad"; exit 1; }

.PHONY: vuln
vuln: $(TOOLS)/govulncheck ## known vulnerabilities in what we link; asks a database on the network
	$(CURDIR)/$(TOOLS)/govulncheck ./...

.PHONY: clean
clean: ## remove bin/
	rm -rf $(BIN)

# Writes OCI archives without a container engine.
$(BIN)/image: $(filter-out %_test.go,$(wildcard hack/image/*.go hack/image/sbom/*.go)) hack/image/go.mod
	@mkdir -p $(BIN)
	cd hack/image && go build -o $(CURDIR)/$@ .

$(TOOLS)/golangci-lint: PKG := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(TOOLS)/benchstat:     PKG := golang.org/x/perf/cmd/benchstat
$(TOOLS)/gofumpt:       PKG := mvdan.cc/gofumpt
$(TOOLS)/gotestsum:     PKG := gotest.tools/gotestsum
$(TOOLS)/govulncheck:   PKG := golang.org/x/vuln/cmd/govulncheck
$(TOOLS)/%: tools/go.mod tools/go.sum
	cd tools && go build -o $(CURDIR)/$@ $(PKG)
	@touch $@
