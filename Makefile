# Every target installs its requirements once; `make` lists the targets.

VENV    := .venv
# The Pythons, 3.N, that a bundle has the packages of VENV for, the newest first.
BUNDLED := $(if $(BUNDLE),$(shell ls $(BUNDLE)/wheels 2>/dev/null | sed -nE 's/^controller-.*-python3\.([0-9]+)\.txt$$/\1/p' | sort -rnu))
# The environment of VENV keeps its Python. A folder of wheels has files for one Python, so that is for the user to name.
PYTHON  ?= $(if $(or $(WHEELS),$(wildcard $(VENV)/.python)),python3,$(or $(shell .ci/find-python $(or $(BUNDLED),14 13 12)),python3))
TORCH   ?= python3
# Resolved before the programs of VENV are first in PATH.
PYTHON  := $(or $(shell command -v $(PYTHON)),$(PYTHON))
TORCH   := $(or $(shell command -v $(TORCH)),$(TORCH))
LAB     ?= trainyard
NODES   ?= 4
SUBNET  ?= 10.77.0.0/24
RELEASE ?= bookworm
# More workers than the two cores of a small machine, as many unit tests wait for monitors and playbooks.
WORKERS ?= 3

# playbooks/lock.yml reads these files, too.
LAB_PACKAGES := $(shell tr '\n' ' ' <molecule/default/packages)
BROWSER_PACKAGES := $(shell tr '\n' ' ' <tests/browser/packages)

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := $(if $(BUNDLE),controller,help)
# The path of the inventory that molecule/default/vars/lab.yml writes.
LAB_INVENTORY = $(CURDIR)/$(if $(filter trainyard,$(LAB)),inventories/lab,.cache/labs/$(LAB)/inventory)
export PATH := $(abspath $(VENV))/bin:$(PATH)
export LAB NODES SUBNET RELEASE LAB_INVENTORY
# Ansible ends where the user's language is not generated, which `locale` reports.
LOCALE_NEXT := $(if $(shell locale 2>&1 >/dev/null),LC_ALL=C.UTF-8 )
# What comes after .venv is there.
PATH_NEXT = next  export $(LOCALE_NEXT)PATH=$(abspath $(VENV))/bin:\$$PATH
export LC_ALL := C.UTF-8
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Otherwise every playbook, of which tests run hundreds, compiles the modules of the project again: half a second each.
unexport PYTHONDONTWRITEBYTECODE

SITE_HERE = ansible-playbook site.yml -i inventories/localhost $(if $(BUNDLE),-e trainyard_bundle=$(BUNDLE))

.PHONY: help
help: ## show this
	@echo "trainyard: from bare Linux hosts to a verified distributed training run"
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; do \
	  printf '  make %-21s %s\n' "$$name" "$$text"; done
	@echo "The lab's inventory: $(LAB_INVENTORY:$(CURDIR)/%=%). Variables of the lab: NODES=$(NODES) LAB=$(LAB) SUBNET=$(SUBNET) RELEASE=$(RELEASE). Interpreter: $(if $(wildcard $(VENV)/.python),$(VENV)/bin/python ($$($(VENV)/bin/python --version)),PYTHON=$(PYTHON))."

.PHONY: demo
demo: $(VENV)/.controller ## train a small network on this machine: no root, no GPU, no ssh
	@$(SITE_HERE)
	@ansible-playbook launch.yml -i inventories/localhost -e @jobs/digits.yml
	@echo "$(PATH_NEXT)"
	@echo "    your own program: docs/first-job.md"

# site.yml installs the data set last.
.PHONY: demo-failure
demo-failure: $(VENV)/.controller ## a lost rank, a hang and a restart on this machine, a minute after `make demo`
	@[ -d .cache/localhost/state/data/digits ] || $(SITE_HERE)
	@.ci/demo_failure.py

# Tests use a lab of their own and never touch one that is in use. Three nodes suffice; each further one costs minutes.
.PHONY: test
test: LAB := trainyard-test
test: NODES := 3
test: SUBNET := 10.76.0.0/24
test: lab-packages $(VENV)/.test ## lint, unit tests and all Molecule scenarios except the slow ones, on a lab of its own
	@.ci/test

.PHONY: lint
lint: $(VENV)/.test ## the size of the tree, yamllint, ruff, mypy, plain English, ansible-lint (production)
	@failed=; \
	.ci/size.py || failed+=" size"; \
	.ci/shown yamllint yamllint --strict . || failed+=" yamllint"; \
	ruff check --quiet || failed+=" ruff"; \
	.ci/shown mypy mypy --no-error-summary || failed+=" mypy"; \
	.ci/shown english .ci/english.py || failed+=" english"; \
	.ci/shown ansible-lint .ci/ansible-lint -q || failed+=" ansible-lint"; \
	if [ -n "$$failed" ]; then echo "lint: failed:$$failed"; exit 1; fi; \
	echo "lint: passed"

.PHONY: docs
docs: $(VENV)/.test ## build the docs as a site; warnings and links that lead nowhere are errors
	@.ci/docs.py

# A test that hangs is named by its stacks, and its process ends, so the run does not wait for it.
HANGS = -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true

.PHONY: unit
unit: $(VENV)/.test ## unit tests, in WORKERS processes; TESTS=tests/unit/inputs for some
	@pytest $(HANGS) -n $(WORKERS) --dist worksteal $(TESTS)

.PHONY: requirements
requirements: $(VENV)/.test ## pin the packages of .venv and of nodes with hashes: UPGRADE=1 for newer versions
	@UPGRADE=$(UPGRADE) CPU_INDEX=$(CPU_INDEX) .ci/requirements.py
	@git status --short requirements roles/*/files

.PHONY: generate
generate: $(VENV)/.controller ## write what follows from the table of job variables: defaults, argument_specs, docs
	@.ci/generate.py
	@git status --short roles/job playbooks/meta docs/job-variables.md docs/awx-survey.json

.PHONY: collection
collection: $(VENV)/.controller ## build the collection trainyard.cluster, and print the path of its archive
	@.ci/collection.py

# BUILD has further options of `podman build`, such as a volume with pip's configuration, which stays out of the image.
.PHONY: execution-environment
execution-environment: IMAGE := localhost/trainyard-ee
execution-environment: $(VENV)/.builder ## build the controller as an image for ansible-navigator and AWX: IMAGE=name BASE=image BUILD=options
	@ansible-builder build --verbosity 3 --container-runtime podman --context .cache/execution-environment --tag $(IMAGE) \
	  $(if $(BASE),--build-arg EE_BASE_IMAGE=$(BASE)) $(if $(BUILD),--extra-build-cli-args='$(BUILD)')

.PHONY: release
release: $(VENV)/.test ## make a release of the last commit: VERSION=0.1.0; it pushes nothing
	@.ci/release.py "$(VERSION)"

# Without KUBECONFIG this uses the simulated API server of the unit tests.
.PHONY: test-kubernetes
test-kubernetes: $(VENV)/.test ## the life of a job in a real cluster: KUBECONFIG=path, NAMESPACE=, IMAGE=
	@TRAINYARD_TEST_KUBECONFIG="$(abspath $(KUBECONFIG))" TRAINYARD_TEST_NAMESPACE="$(NAMESPACE)" \
	  TRAINYARD_TEST_IMAGE="$(IMAGE)" pytest tests/kubernetes/pods_by_name.py -m "not podman"

# These install only .venv, from the folder WHEELS where the machine reaches no index.
HARDWARE_TEST = $(foreach name,CUDA NCCL NCCL_TESTS CANN HCCL_TEST,TRAINYARD_TEST_$(name)="$($(name))") \
	  TRAINYARD_TEST_TORCH="$(TORCH)" \
	  pytest -p no:cacheprovider -o console_output_style=classic -rN --tb=short

.PHONY: test-gpu
test-gpu: $(VENV)/.hardware ## test this machine with NVIDIA GPUs: TORCH=python CUDA= NCCL= NCCL_TESTS=source
	@$(HARDWARE_TEST) tests/hardware/test_gpu.py

.PHONY: test-npu
test-npu: $(VENV)/.hardware ## test this machine with Ascend NPUs: TORCH=python CANN= HCCL_TEST=source
	@$(HARDWARE_TEST) tests/hardware/test_npu.py

.PHONY: browser
browser: browser-packages $(VENV)/.test ## open the pages of reports and of the docs in a headless Chromium
	@pytest $(HANGS) --maxfail=3 tests/browser

.PHONY: molecule
molecule: lab-packages $(VENV)/.test lab ## run Molecule SCENARIO=name (default: all) on the lab LAB, which stays
	@.ci/molecule $(SCENARIO)

.PHONY: lab
lab: lab-packages $(VENV)/.controller ## make NODES real hosts in containers; it names their inventory and what to call
	@ansible-playbook -i localhost, molecule/default/create.yml

.PHONY: lab-destroy
lab-destroy: $(VENV)/.controller ## remove the lab LAB
	@ansible-playbook -i localhost, molecule/default/destroy.yml

# Uses a lab of its own, removed at the end unless KEEP is set; PART=stragglers and PART=scale need none.
.PHONY: benchmark
benchmark: LAB := bench
benchmark: SUBNET := 10.81.0.0/24
benchmark: NODES := 8
benchmark: $(if $(filter stragglers scale,$(PART)),$(VENV)/.controller,lab) ## measure launch.yml and site.yml; PART=launch for one part; see benchmarks/README.md
	@trap '$(if $(KEEP)$(filter stragglers scale,$(PART)),:,ansible-playbook -i localhost, molecule/default/destroy.yml)' EXIT; benchmarks/bench.py $(PART) $(if $(ROUNDS),--rounds=$(ROUNDS))

# Install missing packages of the lab as root, or name them.
.PHONY: lab-packages
lab-packages:
	@missing=$$(for p in $(LAB_PACKAGES); do \
	  dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo -n "$$p "; done); \
	if [ "$$(id -u)" != 0 ]; then \
	  echo "The lab's hosts are containers with systemd and need root. Run: $${missing:+sudo apt-get install -y $$missing&& }sudo make $(MAKECMDGOALS)" >&2; exit 1; \
	elif [ -n "$$missing" ]; then \
	  .ci/install $$missing; \
	fi

.PHONY: browser-packages
browser-packages:
	@if ! { command -v chromium && command -v chromedriver; } >/dev/null; then \
	  if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	    echo "Tests of pages need chromium and chromedriver. Run: sudo apt-get install -y $(BROWSER_PACKAGES)" >&2; exit 1; fi; \
	  .ci/install $(BROWSER_PACKAGES); \
	fi

PIP = 26.3
# Wheels only, as a source archive runs its own code at installation. `make ONLY_BINARY=` accepts those, too.
ONLY_BINARY ?= --only-binary :all:
NO_INDEX = No index of packages can be reached? Bring them as wheels, make WHEELS=folder ...: docs/hardware-test.md says how.
# A folder of wheels instead of an index; it holds pip as well, so ensurepip may be missing. A bundle has one, and pip still
# takes only what requirements/ has the sum of.
ifdef BUNDLE
$(if $(word 2,$(BUNDLE)),$(error BUNDLE=$(BUNDLE): expected a folder without spaces in its name))
override BUNDLE := $(abspath $(BUNDLE))
WHEELS := $(BUNDLE)/wheels
# The lab's image is built from it, too.
export BUNDLE
NO_INDEX = $(BUNDLE) has no such packages: lock them with lock_controllers or lock_also, for this version of the project. docs/offline.md says how.
endif
ifdef WHEELS
export PIP_NO_INDEX := 1
# The data set `digits` is in a wheel among the files of a bundle.
export PIP_FIND_LINKS := $(strip $(abspath $(WHEELS)) $(if $(BUNDLE),$(BUNDLE)/files))
endif

$(VENV)/.python:
	@if [ -n "$(BUNDLE)" ]; then \
	  if [ ! -f $(BUNDLE)/SHA256SUMS ]; then echo "$(BUNDLE) is no bundle: it has no SHA256SUMS. Correct BUNDLE." >&2; exit 1; fi; \
	  minor=$$($(PYTHON) -c 'import sys; print(sys.version_info.minor)' 2>/dev/null || true); \
	  if [[ " $(BUNDLED) " != *" $$minor "* ]]; then \
	    echo "$(PYTHON) is Python 3.$$minor; the bundle has .venv for$(if $(BUNDLED), Python $(BUNDLED:%=3.%), no Python). Name such a one with PYTHON=, or make a bundle with lock_controllers: docs/offline.md says how." >&2; exit 1; fi; \
	fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "$(PYTHON) is $$($(PYTHON) --version 2>&1 || true); expected: Python 3.11 or newer. Name another one: make PYTHON=/path/to/python3.13 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 12))' || \
	  echo "$(PYTHON) is Python 3.11, so Ansible is ansible-core 2.19, which gets no fixes after November 2026. With Python 3.12 or newer it is 2.21."
	@if [ -n "$(WHEELS)" ]; then \
	  if [ ! -f $(WHEELS)/pip-$(PIP)-py3-none-any.whl ]; then \
	    echo "no pip-$(PIP)-py3-none-any.whl in WHEELS=$(WHEELS); docs/hardware-test.md says how the folder is made" >&2; exit 1; fi; \
	  $(PYTHON) -m venv --without-pip $(VENV); \
	  python $(WHEELS)/pip-$(PIP)-py3-none-any.whl/pip install -qq --require-hashes $(ONLY_BINARY) -r requirements/pip.txt; \
	elif ! $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null; then \
	  if [ "$$(id -u)" != 0 ]; then \
	    echo "$(PYTHON) cannot make virtual environments. Run: sudo apt-get install -y python3-venv" >&2; exit 1; fi; \
	  .ci/install python3-venv; \
	fi
	@[ -n "$(WHEELS)" ] || $(PYTHON) -m venv $(VENV)
	@[ -n "$(WHEELS)" ] || pip install -qq --require-hashes $(ONLY_BINARY) -r requirements/pip.txt || { echo "$(NO_INDEX)" >&2; exit 1; }
	@touch $@

$(VENV)/.controller: $(VENV)/.python requirements/controller.txt
	@echo "Installing the controller's tools into $(VENV): ansible-core and 10 others, 70 MB"
	@python .ci/pip --require-hashes $(ONLY_BINARY) -r requirements/controller.txt || { echo "$(NO_INDEX)" >&2; exit 1; }
	@touch $@

.PHONY: controller
controller: $(VENV)/.controller ## install the controller's tools into .venv; BUNDLE=folder: from a bundle, without internet
	@echo "$(PATH_NEXT)"
	@echo "    your own hosts: docs/two-hosts.md; try it on this machine: make demo"

.PHONY: kubernetes
kubernetes: $(VENV)/.kubernetes ## install the packages for job_scheduler: kubernetes

$(VENV)/.kubernetes: $(VENV)/.controller requirements/kubernetes.txt
	@echo "Installing the client of Kubernetes into $(VENV)"
	@python .ci/pip --require-hashes $(ONLY_BINARY) -r requirements/kubernetes.txt || { echo "$(NO_INDEX)" >&2; exit 1; }
	@touch $@

$(VENV)/.builder: $(VENV)/.python requirements/builder.txt
	@echo "Installing ansible-builder into $(VENV)"
	@python .ci/pip --require-hashes $(ONLY_BINARY) -r requirements/builder.txt || { echo "$(NO_INDEX)" >&2; exit 1; }
	@touch $@

$(VENV)/.hardware: $(VENV)/.controller requirements/hardware.txt
	@python -c 'import pytest' 2>/dev/null || echo "Installing pytest into $(VENV)"
	@python .ci/pip --require-hashes $(ONLY_BINARY) -r requirements/hardware.txt || { echo "$(NO_INDEX)" >&2; exit 1; }
	@touch $@

$(VENV)/.test: $(VENV)/.controller requirements/test.txt
	@echo "Installing the test tools into $(VENV)"
	@python .ci/pip --require-hashes $(ONLY_BINARY) -r requirements/test.txt || { echo "$(NO_INDEX)" >&2; exit 1; }
	@touch $@
