# The front door. Every target sets up what it needs, once; `make` lists the targets.

PYTHON  ?= python3
# Looked up before .venv/bin stands first in PATH.
PYTHON  := $(or $(shell command -v $(PYTHON)),$(PYTHON))
LAB     ?= trainyard
NODES   ?= 4
SUBNET  ?= 10.77.0.0/24
RELEASE ?= bookworm
# More than the two cores of a small machine: many unit tests wait, for monitors and for playbooks.
WORKERS ?= 3

# Pinned by hash: it is the one download that no other tool checks.
COLLECTIONS_PACKAGE = ansible==12.3.0 --hash=sha256:cd156f82fa87f7a899212b0efa9f7ca3a24d609212de9f78428a572eb01e5414
LAB_PACKAGES = podman runc netavark aardvark-dns iptables mmdebstrap openssh-client
BROWSER_PACKAGES = chromium chromium-driver

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Where molecule/default/vars/lab.yml has the lab's inventory written.
LAB_INVENTORY = $(CURDIR)/$(if $(filter trainyard,$(LAB)),inventories/lab,.cache/labs/$(LAB)/inventory)
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export LAB NODES SUBNET RELEASE LAB_INVENTORY
export LC_ALL := C.UTF-8
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help
help: ## show this
	@echo "trainyard: from bare Linux hosts to a proven distributed training run"
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; do \
	  printf '  make %-15s %s\n' "$$name" "$$text"; done
	@echo "Variables of the lab: NODES=$(NODES) LAB=$(LAB) SUBNET=$(SUBNET) RELEASE=$(RELEASE). Interpreter: PYTHON=$(PYTHON)."

.PHONY: demo
demo: .venv/.controller .collections/.complete ## train a small network on this machine: no root, no GPU, no ssh
	@ansible-playbook site.yml -i inventories/localhost
	@ansible-playbook launch.yml -i inventories/localhost -e @jobs/digits.yml

# A lab of its own, so that tests never touch one that is in use. Each node more costs minutes; three show all there is.
.PHONY: test
test: LAB := trainyard-test
test: NODES := 3
test: SUBNET := 10.76.0.0/24
test: lab-packages .venv/.test .collections/.complete ## lint, unit, and every Molecule scenario on a lab of its own
	@.ci/test

.PHONY: lint
lint: .venv/.test .collections/.complete ## yamllint, ansible-lint (production), ruff, mypy
	@failed=; \
	yamllint --strict . || failed+=" yamllint"; \
	ruff check --quiet || failed+=" ruff"; \
	mypy --no-error-summary || failed+=" mypy"; \
	ansible-lint -q || failed+=" ansible-lint"; \
	if [ -n "$$failed" ]; then echo "lint: failed:$$failed"; exit 1; fi; \
	echo "lint: passed"

.PHONY: unit
unit: .venv/.test .collections/.complete ## unit tests, WORKERS of them side by side
	@pytest -n $(WORKERS) --dist worksteal

.PHONY: golden
golden: .venv/.test .collections/.complete ## write the whole texts in tests/fixtures/golden anew: review what git shows
	@pytest --golden tests/unit
	@git status --short tests/fixtures/golden

# Without KUBECONFIG against the stand-in that the other tests take.
.PHONY: test-kubernetes
test-kubernetes: .venv/.test .collections/.complete ## the life of a job in a real cluster: KUBECONFIG=path, NAMESPACE=, IMAGE=
	@TRAINYARD_TEST_KUBECONFIG="$(abspath $(KUBECONFIG))" TRAINYARD_TEST_NAMESPACE="$(NAMESPACE)" \
	  TRAINYARD_TEST_IMAGE="$(IMAGE)" pytest tests/kubernetes/test_life.py

.PHONY: browser
browser: browser-packages .venv/.test .collections/.complete ## open the pages of reports in a headless Chromium
	@pytest tests/browser

.PHONY: molecule
molecule: lab-packages .venv/.test lab ## Molecule SCENARIO=name (all without it) on the lab LAB, which stays
	@.ci/molecule $(SCENARIO)

.PHONY: lab
lab: lab-packages .venv/.controller .collections/.complete ## make NODES real hosts in containers; inventories/lab reaches them
	@ansible-playbook -i localhost, molecule/default/create.yml

.PHONY: lab-destroy
lab-destroy: .venv/.controller .collections/.complete ## remove the lab LAB, all of it
	@ansible-playbook -i localhost, molecule/default/destroy.yml

# A lab of its own, removed at the end unless KEEP is set; PART=rank_table, stragglers, scale and ssh need none. Without PART: all of them.
.PHONY: benchmark
benchmark: LAB := bench
benchmark: SUBNET := 10.81.0.0/24
benchmark: NODES := 8
benchmark: $(if $(filter rank_table stragglers scale ssh,$(PART)),.venv/.controller .collections/.complete,lab) ## measure launch.yml and site.yml, PART=launch one part only; see benchmarks/README.md
	@trap '$(if $(KEEP)$(filter rank_table stragglers scale ssh,$(PART)),:,ansible-playbook -i localhost, molecule/default/destroy.yml)' EXIT; benchmarks/bench.py $(PART) $(if $(ROUNDS),--rounds=$(ROUNDS))

# What is missing for the lab, installed as root, or said.
.PHONY: lab-packages
lab-packages:
	@missing=$$(for p in $(LAB_PACKAGES); do \
	  dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo -n "$$p "; done); \
	if [ "$$(id -u)" != 0 ]; then \
	  echo "The lab's hosts are containers with systemd and need root. Run: $${missing:+sudo apt-get install -y $$missing&& }sudo make $(MAKECMDGOALS)" >&2; exit 1; \
	elif [ -n "$$missing" ]; then \
	  echo "Installing with apt: $$missing"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; } >/dev/null; \
	fi

.PHONY: browser-packages
browser-packages:
	@if ! { command -v chromium && command -v chromedriver; } >/dev/null; then \
	  if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	    echo "Tests of pages need chromium and chromedriver. Run: sudo apt-get install -y $(BROWSER_PACKAGES)" >&2; exit 1; fi; \
	  echo "Installing with apt: $(BROWSER_PACKAGES)"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(BROWSER_PACKAGES); } >/dev/null; \
	fi

.venv/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "$(PYTHON) is $$($(PYTHON) --version 2>&1 || true); expected: Python 3.11 or newer. Name another one: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }
	@if ! $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null; then \
	  if [ "$$(id -u)" != 0 ]; then \
	    echo "$(PYTHON) cannot make virtual environments. Run: sudo apt-get install -y python3-venv" >&2; exit 1; fi; \
	  echo "Installing with apt: python3-venv"; \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv; } >/dev/null; \
	fi
	@$(PYTHON) -m venv .venv
	@pip install -qq pip==26.3
	@touch $@

.venv/.controller: .venv/.python pyproject.toml
	@echo "Installing the controller's tools into .venv"
	@pip install -qq --group controller
	@touch $@

.PHONY: kubernetes
kubernetes: .venv/.kubernetes .collections/.complete ## install what job_scheduler: kubernetes needs on top of the others

.venv/.kubernetes: .venv/.controller
	@echo "Installing the client of Kubernetes into .venv"
	@pip install -qq --group kubernetes
	@touch $@

.venv/.test: .venv/.controller
	@echo "Installing the test tools into .venv"
	@pip install -qq --group test
	@touch $@

# Galaxy is often out of reach; the PyPI package `ansible` carries the same collections.
.collections/.complete: requirements.yml | .venv/.python
	@echo "Installing the collections of requirements.yml into .collections"
	@rm -rf .cache/collections && mkdir -p .cache/collections
	@echo '$(COLLECTIONS_PACKAGE)' > .cache/collections/pin.txt
	@pip download -qq --no-deps --require-hashes -r .cache/collections/pin.txt -d .cache/collections
	@sed -nE 's/^ *- name: ([a-z]+)\.([a-z]+)$$/ansible_collections\/\1\/\2\/*/p' requirements.yml | \
	  xargs python -c 'import fnmatch, glob, sys, zipfile; z = zipfile.ZipFile(glob.glob(".cache/collections/*.whl")[0]); z.extractall(".collections", [n for n in z.namelist() if any(fnmatch.fnmatch(n, p) for p in sys.argv[1:])])'
	@rm -rf .cache/collections
	@touch $@
