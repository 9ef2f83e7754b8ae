// SPDX-License-Identifier: Apache-2.0
// Where the converter writes, and that what it keeps changes nothing. Colours are compared elsewhere.
#include <algorithm>
#include <random>

#include "check.h"
#include "rgb_converter.h"

using sparsevideo::FramePtr;
using sparsevideo::FrameSize;
using sparsevideo::PixelMode;
using sparsevideo::RgbConverter;

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr AVPixelFormat kFormats[] = {AV_PIX_FMT_YUV420P,     AV_PIX_FMT_YUV422P,     AV_PIX_FMT_YUV444P,
                                      AV_PIX_FMT_YUV420P10LE, AV_PIX_FMT_YUV422P10LE, AV_PIX_FMT_YUV444P10LE};
constexpr PixelMode kModes[] = {PixelMode::kRgb, PixelMode::kGrey};
constexpr std::size_t kGuardBytes = 512;
constexpr std::uint8_t kGuard = 0xA5;
constexpr int kWidest = 70;

enum class Scan { kProgressive, kInterlaced };

/// A frame of noise.
FramePtr make_frame(AVPixelFormat format, FrameSize size, Scan scan, unsigned seed = 1) {
  FramePtr frame = sparsevideo::make_frame();
  frame->format = format;
  frame->width = size.width;
  frame->height = size.height;
  // Grey of a frame that names its matrix is made by way of RGB.
  frame->colorspace = size.width % 3 == 0 ? AVCOL_SPC_BT709 : AVCOL_SPC_UNSPECIFIED;
  frame->flags = scan == Scan::kInterlaced ? AV_FRAME_FLAG_INTERLACED : 0;
  sparsevideo::check(av_frame_get_buffer(frame.get(), 0), "allocate", sparsevideo::ErrorKind::kDecode);
  std::minstd_rand random(seed);
  const bool two_bytes = av_pix_fmt_desc_get(format)->comp[0].depth > 8;
  for (const AVBufferRef* buffer : frame->buf) {
    for (std::size_t i = 0; buffer != nullptr && i < buffer->size; ++i) {
      buffer->data[i] = static_cast<std::uint8_t>(two_bytes && i % 2 == 1 ? random() % 4 : random() % 256);
    }
  }
  return frame;
}

/// Converts twice into guarded memory of different content. Every byte of the picture must have been
/// written, so that both agree, and none around it.
Bytes converted(RgbConverter& converter, const AVFrame& frame, FrameSize size, int quarter_turns = 0) {
  Bytes pictures[2];
  for (const std::uint8_t before : {0x00, 0xFF}) {
    Bytes memory(kGuardBytes + frame_bytes(size, converter.mode()) + kGuardBytes, kGuard);
    const auto begin = memory.begin() + kGuardBytes;
    const auto end = memory.end() - kGuardBytes;
    std::fill(begin, end, before);
    converter.convert(frame, size, quarter_turns, &*begin);
    const auto is_guard = [](std::uint8_t byte) { return byte == kGuard; };
    CHECK(std::all_of(memory.begin(), begin, is_guard), "format ", frame.format, ", ", frame.width, "x",
          frame.height, " to ", size.width, "x", size.height, ", turns ", quarter_turns);
    CHECK(std::all_of(end, memory.end(), is_guard), "format ", frame.format, ", ", frame.width, "x",
          frame.height, " to ", size.width, "x", size.height, ", turns ", quarter_turns);
    pictures[before == 0 ? 0 : 1].assign(begin, end);
  }
  CHECK(pictures[0] == pictures[1], "format ", frame.format, ", ", frame.width, "x", frame.height, " to ",
        size.width, "x", size.height, ", turns ", quarter_turns);
  return pictures[0];
}

/// What turning `picture` of `size` clockwise once gives.
Bytes turned(const Bytes& picture, FrameSize size, PixelMode mode) {
  const auto channels = static_cast<std::ptrdiff_t>(channels_of(mode));
  Bytes out;
  for (int x = 0; x < size.width; ++x) {
    for (int y = size.height - 1; y >= 0; --y) {
      const auto pixel = picture.begin() + (y * size.width + x) * channels;
      out.insert(out.end(), pixel, pixel + channels);
    }
  }
  return out;
}

TEST(nothing_is_written_around_the_picture_whatever_its_width) {
  for (const PixelMode mode : kModes) {
    for (const AVPixelFormat format : kFormats) {
      for (int width = 1; width <= kWidest; ++width) {
        const FrameSize size{width % 2 == 0 ? 7 : 8, width};
        RgbConverter converter(mode);
        converted(converter, *make_frame(format, size, Scan::kProgressive), size);
      }
    }
  }
}

TEST(nothing_is_written_around_the_picture_whatever_its_height) {
  for (const PixelMode mode : kModes) {
    for (const AVPixelFormat format : kFormats) {
      for (const int height : {1, 2, 3, 5, 17, 33}) {
        for (const int width : {16, 22, 31, 48}) {
          RgbConverter converter(mode);
          converted(converter, *make_frame(format, {height, width}, Scan::kProgressive), {height, width});
        }
      }
    }
  }
}

TEST(nothing_is_written_around_a_resized_picture) {
  for (const PixelMode mode : kModes) {
    for (const AVPixelFormat format : kFormats) {
      const FramePtr frame = make_frame(format, {35, 45}, Scan::kProgressive);
      for (int width = 1; width <= kWidest; width += 3) {
        RgbConverter converter(mode);
        converted(converter, *frame, {width % 4 + 9, width});
        converted(converter, *frame, {70 - width / 2, width});
      }
    }
  }
}

TEST(nothing_is_written_around_a_picture_of_two_fields) {
  for (const PixelMode mode : kModes) {
    for (const AVPixelFormat format : kFormats) {
      for (const int height : {2, 3, 7, 16, 33}) {
        for (const int width : {1, 2, 7, 16, 22, 47, 64}) {
          const FramePtr frame = make_frame(format, {height, width}, Scan::kInterlaced);
          RgbConverter converter(mode);
          converted(converter, *frame, {height, width});
          converted(converter, *frame, {height + 4, width + 5});
        }
      }
    }
  }
}

TEST(a_turned_picture_is_the_upright_one_turned) {
  for (const PixelMode mode : kModes) {
    for (const AVPixelFormat format : {AV_PIX_FMT_YUV420P, AV_PIX_FMT_YUV444P10LE}) {
      for (const FrameSize size : {FrameSize{16, 32}, FrameSize{9, 13}, FrameSize{1, 5}, FrameSize{34, 3}}) {
        const FramePtr frame = make_frame(format, size, Scan::kProgressive);
        RgbConverter converter(mode);
        FrameSize out = size;
        Bytes expected = converted(converter, *frame, size);
        for (int quarter_turns = 1; quarter_turns < 4; ++quarter_turns) {
          expected = turned(expected, out, mode);
          out = {out.width, out.height};
          CHECK(converted(converter, *frame, out, quarter_turns) == expected, size.width, "x", size.height,
                ", turns ", quarter_turns);
        }
      }
    }
  }
}

TEST(fields_are_converted_apart) {
  for (const PixelMode mode : kModes) {
    for (const AVPixelFormat format : kFormats) {
      const FrameSize size{32, 48};
      const FramePtr frame = make_frame(format, size, Scan::kInterlaced);
      RgbConverter converter(mode);
      const Bytes before = converted(converter, *frame, size);
      for (int plane = 0; plane < 3; ++plane) {  // another bottom field: the lines of the top one stay
        for (int y = 1;
             y < AV_CEIL_RSHIFT(size.height, plane == 0 ? 0 : av_pix_fmt_desc_get(format)->log2_chroma_h);
             y += 2) {
          std::fill_n(frame->data[plane] + y * frame->linesize[plane], frame->linesize[plane], 1);
        }
      }
      const Bytes after = converted(converter, *frame, size);
      const std::size_t row = frame_bytes({1, size.width}, mode);
      for (std::size_t y = 0; y < 32; ++y) {
        const bool same = std::equal(before.begin() + static_cast<std::ptrdiff_t>(y * row),
                                     before.begin() + static_cast<std::ptrdiff_t>((y + 1) * row),
                                     after.begin() + static_cast<std::ptrdiff_t>(y * row));
        CHECK(same == (y % 2 == 0), "format ", format, ", row ", y);
      }
    }
  }
}

TEST(a_kept_converter_writes_what_a_new_one_does) {
  std::mt19937 random(1);
  RgbConverter of_colours(PixelMode::kRgb);
  RgbConverter of_greys(PixelMode::kGrey);
  for (unsigned i = 0; i < 300; ++i) {
    const AVPixelFormat format = kFormats[random() % std::size(kFormats)];
    const FrameSize size = random() % 2 == 0 ? FrameSize{24, 40} : FrameSize{25, 33};
    const FramePtr frame =
        make_frame(format, size, random() % 2 == 0 ? Scan::kProgressive : Scan::kInterlaced, i);
    frame->colorspace = random() % 2 == 0 ? AVCOL_SPC_BT709 : AVCOL_SPC_UNSPECIFIED;
    frame->color_range = random() % 2 == 0 ? AVCOL_RANGE_JPEG : AVCOL_RANGE_MPEG;
    frame->chroma_location = random() % 2 == 0 ? AVCHROMA_LOC_LEFT : AVCHROMA_LOC_TOPLEFT;
    const FrameSize out = random() % 2 == 0 ? size : FrameSize{20, 20};
    RgbConverter& kept = random() % 2 == 0 ? of_colours : of_greys;
    RgbConverter fresh(kept.mode());
    CHECK(converted(kept, *frame, out) == converted(fresh, *frame, out), "conversion ", i);
  }
}

}  // namespace
