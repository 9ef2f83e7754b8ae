// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace sparsevideo {

enum class ErrorKind {
  kNotFound,    // the source does not exist
  kRead,        // the source cannot be read, or its bytes changed
  kFormat,      // not a video, or a container or codec that is not supported
  kOutOfRange,  // a frame number outside the video
  kDecode,      // damaged pictures
  kIndex,       // an index file that is not believed
  kWrite,       // the output cannot be written
};

/// The one exception of the core; the bindings turn it into a Python class by its kind.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace sparsevideo
