// SPDX-License-Identifier: Apache-2.0
// Errors of the core as Python's exceptions.
#pragma once

#include <nanobind/nanobind.h>

#include "error.h"

namespace sparsevideo {

/// The class of daft_sparsevideo/errors.py for a kind of error.
inline const char* class_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kNotFound:
      return "ShardNotFoundError";
    case ErrorKind::kRead:
      return "ShardReadError";
    case ErrorKind::kFormat:
      return "ShardFormatError";
    case ErrorKind::kOutOfRange:
      return "FrameOutOfRangeError";
    case ErrorKind::kDecode:
      return "FrameDecodeError";
    case ErrorKind::kIndex:
      return "IndexFileError";
    case ErrorKind::kWrite:
      return "ShardWriteError";
  }
  return "SparseVideoError";
}

inline nanobind::object error_class(ErrorKind kind) {
  return nanobind::module_::import_("daft_sparsevideo.errors").attr(class_name(kind));
}

/// Lets a module's functions raise them.
inline void register_errors() {
  nanobind::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Error& error) {
      PyErr_SetString(error_class(error.kind()).ptr(), error.what());
    }
  });
}

}  // namespace sparsevideo
