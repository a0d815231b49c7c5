# The short names of what one does with temper. `make help` lists them.
PRESET ?= dev
ARGS ?=
# Ninja's own choice is two more, each of which can take 1.5 GB.
JOBS ?= $(shell nproc)
BUILD = build/$(PRESET)
# Of FOLDERS, those that have tests.
TESTED = $(strip $(foreach f,$(FOLDERS),\
  $(if $(wildcard tests/$(f)/*_test.cpp),$(f))))
space := $(subst ,, )
# Given always, so that unsetting it brings the wheel back.
CMAKE_ARGS = -DTORCH_ROOT=$(abspath $(TORCH_ROOT))

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 22

setup: ## install what is missing (see scripts/setup)
	@scripts/setup

configure: setup
	@cmake --preset $(PRESET) $(CMAKE_ARGS)

build: configure ## build everything; PRESET=dev|release|asan|tsan
	@cmake --build $(BUILD) -j $(JOBS)

test: build ## build and run all tests
	@ctest --preset $(PRESET)

asan: FOLDERS ?= $(notdir $(wildcard src/*))
asan: ## unit tests with Address- and UndefinedBehaviorSanitizer; FOLDERS="graph ops"
	@$(MAKE) --no-print-directory PRESET=asan configure
	@cmake --build build/asan -j $(JOBS) --target $(TESTED:%=%_tests)
	@ctest --preset asan -R '^($(subst $(space),|,$(TESTED)))$$'

tsan: FOLDERS ?= dispatch runtime
tsan: ## tests of dispatch and runtime with ThreadSanitizer; FOLDERS="..."
	@$(MAKE) --no-print-directory PRESET=tsan configure
	@cmake --build build/tsan -j $(JOBS) --target $(TESTED:%=%_tests)
	@ctest --preset tsan -R '^($(subst $(space),|,$(TESTED)))$$'

mutants: ## do the tests notice wrong graphs? (see scripts/check-mutants)
	@$(MAKE) --no-print-directory configure
	@cmake --build $(BUILD) -j $(JOBS) --target models_tests cases_tests fuzz_tests \
	  module_tests
	@scripts/check-mutants $(BUILD)

demo: ## a small GPT trained on text, eager and compiled; ARGS="--help"
	@$(MAKE) --no-print-directory PRESET=release configure
	@cmake --build build/release -j $(JOBS) --target char_gpt
	@build/release/examples/char_gpt $(ARGS)

bench: ## the measurements; ARGS="--help"
	@$(MAKE) --no-print-directory PRESET=release configure
	@cmake --build build/release -j $(JOBS) --target temper_bench
	@build/release/benchmarks/temper_bench $(ARGS)

install: ## install the release build; PREFIX=/usr/local
	@$(MAKE) --no-print-directory PRESET=release configure
	@cmake --build build/release -j $(JOBS) --target temper
	@cmake --install build/release $(if $(PREFIX),--prefix $(abspath $(PREFIX)))

check-install: ## install into a temporary folder and build a program on it
	@$(MAKE) --no-print-directory PRESET=release configure
	@scripts/check-install build/release

check-demo: ## do the demo and the measurements say what they should?
	@$(MAKE) --no-print-directory configure
	@cmake --build $(BUILD) -j $(JOBS) --target char_gpt temper_bench
	@scripts/check-demo $(BUILD)

check-setup: ## does set-up fail in one clear line?
	@scripts/check-setup

format: ## format our own files
	@scripts/format

format-check: ## fail where a file is not formatted
	@scripts/format --check

tidy: configure ## clang-tidy on our own files
	@scripts/tidy $(BUILD)

clean: ## remove all builds, keep what setup installed
	rm -rf build

.PHONY: help setup configure build test asan tsan mutants demo bench install \
  check-install check-demo check-setup format format-check tidy clean
