// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ffmpeg_handles.h"

namespace sparsevideo {

struct FrameSize {
  int height = 0;
  int width = 0;
  bool operator==(const FrameSize&) const = default;
};

/// What a written pixel is.
enum class PixelMode : std::uint8_t {
  kRgb,   // three bytes: red, green, blue
  kGrey,  // one byte
};

constexpr std::size_t channels_of(PixelMode mode) { return mode == PixelMode::kRgb ? 3 : 1; }

constexpr std::size_t frame_bytes(FrameSize size, PixelMode mode) {
  return static_cast<std::size_t>(size.height) * static_cast<std::size_t>(size.width) * channels_of(mode);
}

/// Converts decoded frames to packed 8-bit RGB or to grey with swscale, as PyAV 18 does: the matrix
/// and range that the frame is tagged with (BT.601 limited if it is not), bilinear scaling, fields of
/// interlaced frames apart. Keeps its contexts; use one converter a thread.
class RgbConverter {
 public:
  explicit RgbConverter(PixelMode mode) : mode_(mode) {}

  [[nodiscard]] PixelMode mode() const { return mode_; }

  /// Writes frame_bytes(size, mode) bytes to `out`. `quarter_turns` clockwise are applied last, and
  /// `size` is the size after them.
  void convert(const AVFrame& frame, FrameSize size, int quarter_turns, std::uint8_t* out);

 private:
  struct Key {
    int width, height, format, colorspace, range, chroma_location, interlaced;
    FrameSize out;
    bool operator==(const Key&) const = default;
  };

  void scale(const AVFrame& frame, FrameSize size, std::uint8_t* out, std::size_t stride);
  void configure(const AVFrame& frame, FrameSize out, bool interlaced);

  PixelMode mode_;
  Key key_ = {};
  std::array<ScalerPtr, 2> scalers_;  // of the frame, or of its top and bottom field
  std::vector<std::uint8_t> scratch_;
};

}  // namespace sparsevideo
