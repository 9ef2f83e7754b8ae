// SPDX-License-Identifier: Apache-2.0
#include "rgb_converter.h"

#include <cstring>
#include <string>

extern "C" {
#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
}

namespace sparsevideo {

namespace {

constexpr int kNeutral = 1 << 16;  // contrast and saturation in swscale's fixed point

// swscale's coefficient tables follow the numbers of AVColorSpace, with gaps.
int coefficients_of(AVColorSpace space) {
  switch (space) {
    case AVCOL_SPC_BT709:
      return SWS_CS_ITU709;
    case AVCOL_SPC_FCC:
      return SWS_CS_FCC;
    case AVCOL_SPC_SMPTE240M:
      return SWS_CS_SMPTE240M;
    case AVCOL_SPC_BT2020_NCL:
      return SWS_CS_BT2020;
    case AVCOL_SPC_YCGCO:
    case AVCOL_SPC_BT2020_CL:
    case AVCOL_SPC_SMPTE2085:
    case AVCOL_SPC_CHROMA_DERIVED_NCL:
    case AVCOL_SPC_CHROMA_DERIVED_CL:
    case AVCOL_SPC_ICTCP:
    case AVCOL_SPC_IPT_C2:
    case AVCOL_SPC_YCGCO_RE:
    case AVCOL_SPC_YCGCO_RO:  // no matrix makes RGB of these, and PyAV refuses them too
      throw Error(ErrorKind::kFormat, std::string("cannot convert colours of ") + av_color_space_name(space));
    default:
      return SWS_CS_DEFAULT;
  }
}

ScalerPtr make_scaler(const AVFrame& frame, int height, FrameSize out, int out_height, int field,
                      PixelMode mode) {
  ScalerPtr scaler(check_allocated(sws_alloc_context()));
  const auto set = [&](const char* name, std::int64_t value) {
    check(av_opt_set_int(scaler.get(), name, value, 0), name, ErrorKind::kDecode);
  };
  const auto format = static_cast<AVPixelFormat>(frame.format);
  set("srcw", frame.width);
  set("srch", height);
  set("src_format", frame.format);
  set("dstw", out.width);
  set("dsth", out_height);
  set("dst_format", mode == PixelMode::kRgb ? AV_PIX_FMT_RGB24 : AV_PIX_FMT_GRAY8);
  set("sws_flags", SWS_BILINEAR);
  // Where the chroma samples lie between the luma samples, as swscale counts it.
  const AVPixFmtDescriptor* descriptor = av_pix_fmt_desc_get(format);
  if (descriptor->log2_chroma_w != 0 || descriptor->log2_chroma_h != 0) {
    const AVChromaLocation location =
        frame.chroma_location == AVCHROMA_LOC_UNSPECIFIED ? AVCHROMA_LOC_CENTER : frame.chroma_location;
    int x = 0;
    int y = 0;
    av_chroma_location_enum_to_pos(&x, &y, location);
    x *= (1 << descriptor->log2_chroma_w) - 1;
    y *= (1 << descriptor->log2_chroma_h) - 1;
    if (field >= 0) {
      y = (y + 256 * field) >> 1;
    }
    if (descriptor->log2_chroma_w != 0) {
      set("src_h_chr_pos", x);
    }
    if (descriptor->log2_chroma_h != 0) {
      set("src_v_chr_pos", y);
    }
  }
  check(sws_init_context(scaler.get(), nullptr, nullptr), "cannot convert this pixel format",
        ErrorKind::kDecode);
  // Grey, on either side, has the full range and the matrix of an untagged frame, whatever it says.
  const int* untagged = sws_getCoefficients(SWS_CS_DEFAULT);
  const bool from_grey = descriptor->nb_components == 1;
  const int* from = from_grey ? untagged : sws_getCoefficients(coefficients_of(frame.colorspace));
  const int* to = mode == PixelMode::kGrey ? untagged : from;
  const int full_range = from_grey || frame.color_range == AVCOL_RANGE_JPEG ? 1 : 0;
  check(sws_setColorspaceDetails(scaler.get(), from, full_range, to, 1, 0, kNeutral, kNeutral),
        "cannot convert these colours", ErrorKind::kDecode);
  return scaler;
}

// Writes the picture in `upright`, whose rows are `stride` bytes apart, turned clockwise.
void rotate(const std::uint8_t* upright, std::size_t stride, FrameSize out, int quarter_turns,
            std::size_t channels, std::uint8_t* rotated) {
  const bool swaps = quarter_turns % 2 != 0;
  const int height = swaps ? out.width : out.height;  // of `upright`
  const int width = swaps ? out.height : out.width;
  for (int y = 0; y < out.height; ++y) {
    for (int x = 0; x < out.width; ++x) {
      const int from_y = quarter_turns == 1 ? height - 1 - x : quarter_turns == 2 ? height - 1 - y : x;
      const int from_x = quarter_turns == 1 ? y : quarter_turns == 2 ? width - 1 - x : width - 1 - y;
      const std::size_t from =
          static_cast<std::size_t>(from_y) * stride + static_cast<std::size_t>(from_x) * channels;
      std::memcpy(rotated, upright + from, channels);
      rotated += channels;
    }
  }
}

int field_height(int height, int field) { return (height + 1 - field) / 2; }

// swscale writes whole blocks of samples, past the end of a row that is no multiple of them.
constexpr int kBlockWidth = 16;

}  // namespace

void RgbConverter::configure(const AVFrame& frame, FrameSize out, bool interlaced) {
  const Key key{frame.width,       frame.height,          frame.format,       frame.colorspace,
                frame.color_range, frame.chroma_location, interlaced ? 1 : 0, out};
  if (scalers_[0] && key == key_) {
    return;
  }
  if (interlaced) {
    for (int field = 0; field < 2; ++field) {
      scalers_[static_cast<std::size_t>(field)] = make_scaler(frame, field_height(frame.height, field), out,
                                                              field_height(out.height, field), field, mode_);
    }
  } else {
    scalers_[0] = make_scaler(frame, frame.height, out, out.height, -1, mode_);
  }
  key_ = key;
}

void RgbConverter::convert(const AVFrame& frame, FrameSize size, int quarter_turns, std::uint8_t* out) {
  const FrameSize upright = quarter_turns % 2 == 0 ? size : FrameSize{size.width, size.height};
  const int padded_width = FFALIGN(upright.width, kBlockWidth);
  const std::size_t channels = channels_of(mode_);
  const std::size_t row_bytes = static_cast<std::size_t>(upright.width) * channels;
  const std::size_t stride = static_cast<std::size_t>(padded_width) * channels;
  if (quarter_turns == 0 && padded_width == upright.width) {
    scale(frame, upright, out, stride);
    return;
  }
  scratch_.resize(stride * static_cast<std::size_t>(upright.height) + AV_INPUT_BUFFER_PADDING_SIZE);
  scale(frame, upright, scratch_.data(), stride);
  if (quarter_turns != 0) {
    rotate(scratch_.data(), stride, size, quarter_turns, channels, out);
    return;
  }
  for (int y = 0; y < upright.height; ++y) {
    std::memcpy(out + static_cast<std::size_t>(y) * row_bytes,
                scratch_.data() + static_cast<std::size_t>(y) * stride, row_bytes);
  }
}

void RgbConverter::scale(const AVFrame& frame, FrameSize size, std::uint8_t* out, std::size_t stride) {
  const bool interlaced = (frame.flags & AV_FRAME_FLAG_INTERLACED) != 0;
  configure(frame, size, interlaced);
  const int fields = interlaced ? 2 : 1;
  for (int field = 0; field < fields; ++field) {
    std::array<const std::uint8_t*, 4> planes = {};
    std::array<int, 4> strides = {};
    for (std::size_t plane = 0; plane < planes.size() && frame.data[plane] != nullptr; ++plane) {
      planes[plane] = frame.data[plane] + static_cast<std::ptrdiff_t>(field) * frame.linesize[plane];
      strides[plane] = frame.linesize[plane] * fields;
    }
    const std::array<std::uint8_t*, 4> out_planes = {out + static_cast<std::size_t>(field) * stride};
    const std::array<int, 4> out_strides = {static_cast<int>(stride) * fields};
    const int height = interlaced ? field_height(frame.height, field) : frame.height;
    check(sws_scale(scalers_[static_cast<std::size_t>(field)].get(), planes.data(), strides.data(), 0, height,
                    out_planes.data(), out_strides.data()),
          "cannot convert a frame", ErrorKind::kDecode);
  }
}

}  // namespace sparsevideo
