// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "clips.h"

using Bytes = std::vector<std::uint8_t>;

inline Bytes clip_bytes(const Clip& clip) {
  const std::string_view digits = clip.digits;
  Bytes bytes(digits.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::from_chars(digits.data() + 2 * i, digits.data() + 2 * i + 2, bytes[i], 16);
  }
  return bytes;
}

inline Bytes clip_bytes(std::string_view name) {
  for (const Clip& clip : kClips) {
    if (clip.name == name) {
      return clip_bytes(clip);
    }
  }
  throw std::invalid_argument("no clip " + std::string(name));
}
