# SPDX-License-Identifier: Apache-2.0
# make demo         sparse frames of a small LeRobot dataset made on the spot (DATASET=folder: of yours)
# make test         everything that must pass: lint, native tests under sanitizers, Python tests
# make exactness    the whole exactness protocol, 17,000 requests
# make bench        ratios beside other readers, on DATASET="folder ..."
# make bench-ddra   what reencode_ddra writes, beside other encoders, on MASTERS=folder DATASET="h264 [av1]"
# make lint | native-test | stub | clean
#
# All of it works in .venv. Missing system packages: root gets them through apt, others are told the command.
PYTHON ?= python3
VENV ?= .venv
DATASET ?=
MASTERS ?=
# PEERS=0 leaves out what is only compared with (torch is large); the tests that need it are skipped.
PEERS ?= 1

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.PHONY: demo test exactness bench bench-ddra lint tidy native-test stub stub-is-fresh clean

BIN := $(VENV)/bin
JOBS := $(shell nproc)
CPP := $(wildcard cpp_ext/*.cpp cpp_ext/encoder/*.cpp)
HEADERS := $(wildcard cpp_ext/*.h cpp_ext/encoder/*.h)
MODULES := _core _encoder
MAKE_STUBS := $(BIN)/python -m nanobind.stubgen -q $(MODULES:%=-m daft_sparsevideo.%) -O
# The name of a mark says which extras of pyproject.toml are installed.
comma := ,
ALL := $(VENV)/installed-test,lint$(if $(filter 1,$(PEERS)),$(comma)bench)

demo: $(VENV)/installed-demo
	$(BIN)/python examples/demo.py $(DATASET)

test: lint native-test $(ALL)
	$(BIN)/pytest -q

exactness: $(ALL)
	SPARSEVIDEO_EXACTNESS=full $(BIN)/pytest -q tests/test_exactness.py tests/test_corpus.py

bench: $(ALL)
	@[ -n "$(DATASET)" ] || { echo 'usage: make bench DATASET="folder of a LeRobot v3 dataset ..."'; exit 2; }
	$(BIN)/python -m benchmarks $(DATASET)

bench-ddra: $(ALL)
	@[ -n "$(MASTERS)" ] && [ -n "$(DATASET)" ] || { echo 'usage: make bench-ddra MASTERS="folder of lossless videos" DATASET="folder of a LeRobot v3 dataset in H.264 [the same in AV1]"'; exit 2; }
	$(BIN)/python -m benchmarks.ddra $(MASTERS) $(DATASET) $(if $(CALIBRATE),--calibrate)

lint: $(ALL) stub-is-fresh tidy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(CPP) $(HEADERS) $(wildcard cpp_ext/tests/*)

# A mark for each file that has passed, so that only changes are looked at again. The bindings are nanobind's macros.
tidy: $(patsubst cpp_ext/%.cpp,build/tidy/%,$(filter-out %bindings.cpp,$(CPP)))
build/tidy/%: cpp_ext/%.cpp $(HEADERS) .clang-tidy $(ALL)
	@mkdir -p $(@D)
	$(BIN)/clang-tidy --quiet -p build/module $<
	touch $@

# All of them with AddressSanitizer and UBSan; those that are about threads with ThreadSanitizer, too.
native-test: native-test-address native-test-thread
native-test-address: TESTS_OF_IT := .
native-test-thread: TESTS_OF_IT := thread
native-test-%: $(ALL)
	$(BIN)/cmake -S . -B build/native-$* -G Ninja -DSPARSEVIDEO_NATIVE_TESTS=$* \
	  -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DPython_EXECUTABLE=$(abspath $(BIN))/python
	$(BIN)/cmake --build build/native-$*
	$(BIN)/ctest --test-dir build/native-$* -R '$(TESTS_OF_IT)' --no-tests=error --output-on-failure --parallel $(JOBS)

# The types of the compiled modules, as nanobind tells them.
stub: $(ALL)
	$(MAKE_STUBS) daft_sparsevideo

stub-is-fresh: $(ALL)
	@mkdir -p build/stubs
	$(MAKE_STUBS) build/stubs
	for name in $(MODULES); do
	  diff -u daft_sparsevideo/$$name.pyi build/stubs/$$name.pyi || { echo "$$name.pyi isn't what the module says: make stub"; exit 1; }
	done

clean:
	rm -rf build dist $(VENV) .mypy_cache .pytest_cache .ruff_cache

# The modules are built again when what they are made of changes; build/module makes that incremental.
RECIPE := $(foreach kind,py toml patch,$(wildcard ffmpeg-patch/*.$(kind)))
$(VENV)/installed-%: pyproject.toml CMakeLists.txt $(CPP) $(HEADERS) $(RECIPE) $(VENV)/ready
	$(if $(findstring bench,$*),PYTHON=$(PYTHON) .ci/system-packages ffmpeg aomenc:aom-tools)
	export PATH="$(abspath $(BIN)):$$PATH"  # x265 is built by CMake
	[ -n "$${SPARSEVIDEO_FFMPEG_PREFIX:-}" ] || python ffmpeg-patch/build.py ffmpeg
	[ "$${SPARSEVIDEO_ENCODER:-ON}" = OFF ] ||
	  for library in x264 x265 "x265 --flavour main10"; do python ffmpeg-patch/build.py $$library; done
	$(BIN)/pip install -q --no-build-isolation --config-settings=build-dir=build/module -e '.[$*]'
	touch $@

$(VENV)/ready: pyproject.toml
	PYTHON=$(PYTHON) .ci/system-packages
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' > $(VENV)/build-requires
	$(BIN)/pip install -q -r $(VENV)/build-requires cmake ninja
	touch $@
