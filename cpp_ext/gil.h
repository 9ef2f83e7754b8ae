// SPDX-License-Identifier: Apache-2.0
// The interpreter's lock, taken and given back so that a thread survives the interpreter's end.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace sparsevideo {

/// Takes the GIL by `take`. When the interpreter ends meanwhile, Python unwinds the thread, which no
/// destructor and no C code in between survives; the thread waits for the end of the process instead.
template <typename Take>
void take_gil(Take take) noexcept {
  try {
    take();
  } catch (const abi::__forced_unwind&) {
    while (true) {
      pause();
    }
  }
}

class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;
  ~GilRelease() {
    take_gil([this] { PyEval_RestoreThread(state_); });
  }

 private:
  PyThreadState* state_;
};

class GilAcquire {
 public:
  GilAcquire() {
    take_gil([this] { state_ = PyGILState_Ensure(); });
  }
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;
  ~GilAcquire() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_ = PyGILState_UNLOCKED;
};

}  // namespace sparsevideo
