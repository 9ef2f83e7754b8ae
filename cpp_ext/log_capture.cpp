// SPDX-License-Identifier: Apache-2.0
#include "log_capture.h"

#include <array>
#include <cstdarg>
#include <mutex>

extern "C" {
#include <libavutil/log.h>
}

namespace sparsevideo {

namespace {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): FFmpeg has one log for all
thread_local std::array<char, 256> first_error = {};

void note_error(void* context, int level, const char* format, va_list arguments) {
  if (level <= AV_LOG_ERROR && first_error[0] == '\0') {
    int print_prefix = 0;
    av_log_format_line2(context, level, format, arguments, first_error.data(),
                        static_cast<int>(first_error.size()), &print_prefix);
  }
}

}  // namespace

void capture_log() {
  static std::once_flag once;
  std::call_once(once, [] { av_log_set_callback(note_error); });
}

std::string take_logged_error() {
  std::string text = first_error.data();
  first_error[0] = '\0';
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  return text;
}

}  // namespace sparsevideo
