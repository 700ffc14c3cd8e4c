# Every target sets up its own environment first, in .venv, if it is missing or older than what it is made from.
# Extra words for pytest or the benchmark: make test ARGS="-k catalog".
# `make verify`: ARGS is for the engine's proof, LONG for pytest.

BIN := .venv/bin
ARGS :=
SCHEDULES := 10000
FUZZ_SECONDS := 3600
LONG :=
FIND_PYTHON := for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null && { echo "$$p"; break; }; done

INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps
LOCKED := $(INSTALL) --require-hashes --no-build-isolation --use-pep517
TORCH_NEEDS_CUDA := import importlib.metadata as m, sys; \
	sys.exit(not any("cuda" in line or "nvidia" in line for line in m.requires("torch") or []))

.PHONY: run compare results test check verify bench story portable extras dist lock docs docs-serve
.DEFAULT_GOAL := run

run: .venv/stamp
	@echo "== training XTX on the embedded adventure: 3 to 5 minutes; Ctrl-C saves and stops"
	@$(BIN)/xtx train $(ARGS)

compare: .venv/stamp
	@echo "== training five agents on the same adventure, with equal steps: half an hour; it can be stopped, and make compare continues it"
	@$(BIN)/xtx compare $(ARGS)

results: .venv/stamp
	@echo "== writing the reports of the summaries in results/ into docs/results.md and docs/results/full.md"
	@$(BIN)/xtx report results --short --embed docs/results.md
	@$(BIN)/xtx report results --embed docs/results/full.md
	@$(BIN)/xtx report results --no-walkthroughs --out .venv/results.html --figures .venv/figures
	@cp $(addprefix .venv/figures/training-,detective.svg deephome-star.svg inhumane-star.svg) docs/results
	@$(BIN)/xtx report $(addprefix results/zork1/,xtx xtx-uniform drrn inv-dy) --no-walkthroughs --out .venv/results.html \
		--figures .venv/figures/zork1
	@cp .venv/figures/zork1/training-zork1.svg docs/results/zork1-beside-paper.svg

test: .venv/stamp
	@echo "== running the tests$(if $(XTX_GAMES), with the games in $(XTX_GAMES),; set XTX_GAMES to test with real games too)"
	@$(BIN)/python -m pytest $(ARGS)

check: .venv/stamp
	@echo "== checking format, lint and types"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

verify: .venv/stamp
	@echo "== running all long tests, which take hours; for less: make verify SCHEDULES=300 FUZZ_SECONDS=60 ARGS=\"--states 1 zork1\""
	@echo "== comparing the set-execution engine with Frotz (an hour with all games)"
	@$(BIN)/python tests/games/zset/zset_verify.py $(ARGS)
	@echo "== $(SCHEDULES) simulated schedules of faults"
	@$(BIN)/python tests/runs/fault_simulator.py --count $(SCHEDULES)
	@$(BIN)/python tests/runs/fault_simulator.py --workers --count $$(( ($(SCHEDULES) + 99) / 100 ))
	@echo "== forged states of the emulators, under sanitizers"
	@$(BIN)/python tests/games/emulator/snapshot_fuzz.py
	@echo "== damaged files of every format, for $(FUZZ_SECONDS) s"
	@$(BIN)/python tests/fuzz/run.py --seconds $(FUZZ_SECONDS)
	@echo "== surveying the stories at hand again, to compare the layouts that come with xtx"
	@$(if $(XTX_GAMES),$(BIN)/python tools/ship_layouts.py --check $(subst :, ,$(XTX_GAMES)),echo "XTX_GAMES is not set: none")
	@echo "== tests that take many minutes"
	@XTX_SLOW=1 $(BIN)/python -m pytest -m long $(LONG)

bench: .venv/stamp
	@echo "== measuring speed"
	@$(BIN)/python benchmarks/games.py $(ARGS)
	@$(BIN)/python benchmarks/search.py $(ARGS)
	@$(BIN)/python benchmarks/learning.py $(ARGS)

story: .venv/stamp
	@echo "== compiling the stories with Inform 6"
	@$(MAKE) --no-print-directory -C stories PYTHON=$(CURDIR)/$(BIN)/python

portable: .venv/stamp
	@echo "== packing xtx for a machine on which nothing can be installed"
	@$(BIN)/python tools/portable.py $(ARGS)

dist: .venv/dist-tools
	@echo "== building the packages: sdist and manylinux wheel, in dist/"
	@$(BIN)/python tools/dist.py $(ARGS)

extras: .venv/extras

docs: .venv/extras
	@echo "== building the documentation into .venv/site"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-serve: .venv/extras
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr 127.0.0.1:8000

# Resolves in an environment of its own, so that what is installed here makes no difference.
lock: .venv/stamp
	@echo "== pinning all packages with their checksums"
	@$(BIN)/python -m venv --clear .venv/lock
	@.venv/lock/bin/python tools/lock.py $(ARGS)

# Versions and checksums come from the constraints files, so nothing is resolved and nothing is built in isolation. The
# editable install also compiles the C sources into the source tree.
.venv/stamp: pyproject.toml constraints-build.txt constraints.txt constraints-cuda.txt $(wildcard xtx/games/emulator/*.[ch] xtx/games/zset/*.[ch] xtx/kernels/cpu/*.[ch])
	@python=$$($(FIND_PYTHON)); \
	if [ -z "$$python" ]; then echo "xtx needs Python 3.11 to 3.14: install one of them and run make again" >&2; exit 2; fi; \
	if ! command -v gcc >/dev/null; then echo "xtx needs a C compiler: install gcc and run make again" >&2; exit 2; fi; \
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
		echo "$$python cannot make virtual environments: install python3-venv and run make again" >&2; exit 2; fi; \
	echo "== setting up .venv with $$("$$python" --version) (the first time takes a few minutes: Jericho is compiled)"; \
	"$$python" -m venv .venv
	@$(LOCKED) -r constraints-build.txt
	@sed -n '/^torch==/,/[^\\]$$/p' constraints.txt >.venv/torch.txt
	@$(LOCKED) --no-index -r .venv/torch.txt 2>/dev/null || true  # torch from pip's find-links, if it lies there: a fifth the size
	@$(LOCKED) -r constraints.txt
	@if $(BIN)/python -c '$(TORCH_NEEDS_CUDA)'; then $(LOCKED) -r constraints-cuda.txt; fi
	@$(INSTALL) --no-build-isolation -e .
	@$(BIN)/python -m pip check --disable-pip-version-check >.venv/check || { cat .venv/check >&2; exit 2; }
	@touch $@

.venv/extras: .venv/stamp constraints-extras.txt
	@echo "== installing the extras: Ray, Weights & Biases, the documentation tools"
	@$(LOCKED) -r constraints-extras.txt
	@touch $@

.venv/dist-tools: .venv/stamp constraints-dist.txt
	@$(LOCKED) -r constraints-dist.txt
	@touch $@
