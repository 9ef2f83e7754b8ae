// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace sparsevideo {

/// Takes FFmpeg's log for this process; nothing is printed any more.
void capture_log();

/// The first error that FFmpeg logged on this thread since the last call, or "".
///
/// FFmpeg tells much of what it stumbles over only in its log. One decoder works on one thread at a
/// time, so what was logged belongs to what the thread has just asked for.
std::string take_logged_error();

}  // namespace sparsevideo
