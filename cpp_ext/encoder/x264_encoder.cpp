// SPDX-License-Identifier: GPL-2.0-or-later

#include <cstdint>

extern "C" {
#include <x264.h>  // needs <cstdint>
}

#include <algorithm>
#include <cstring>
#include <span>
#include <stdexcept>
#include <utility>

#include "encoder/picture_encoder.h"

namespace sparsevideo {
namespace {

constexpr std::array<std::pair<PictureType, int>, 5> kTypes{{{PictureType::kIdr, X264_TYPE_IDR},
                                                             {PictureType::kIntra, X264_TYPE_I},
                                                             {PictureType::kInter, X264_TYPE_P},
                                                             {PictureType::kReferenceB, X264_TYPE_BREF},
                                                             {PictureType::kB, X264_TYPE_B}}};

void set_colour(x264_param_t& param, const EncoderSettings& settings) {
  param.vui.i_colorprim = settings.color_primaries;
  param.vui.i_transfer = settings.color_trc;
  param.vui.i_colmatrix = settings.color_space;
  if (settings.color_range != AVCOL_RANGE_UNSPECIFIED) {
    param.vui.b_fullrange = settings.color_range == AVCOL_RANGE_JPEG ? 1 : 0;
  }
  if (settings.chroma_location != AVCHROMA_LOC_UNSPECIFIED) {
    param.vui.i_chroma_loc = settings.chroma_location - 1;
  }
  if (settings.sample_aspect_ratio.num > 0) {
    param.vui.i_sar_width = settings.sample_aspect_ratio.num;
    param.vui.i_sar_height = settings.sample_aspect_ratio.den;
  }
}

x264_param_t make_param(const EncoderSettings& settings, int longest_b_run) {
  x264_param_t param;
  const char* tune = settings.tune.empty() ? nullptr : settings.tune.c_str();
  if (x264_param_default_preset(&param, settings.preset.c_str(), tune) < 0) {
    throw std::invalid_argument("x264 has no preset " + settings.preset + ", or no tune " + settings.tune);
  }
  param.i_log_level = X264_LOG_NONE;
  param.i_threads = settings.num_threads;
  param.i_lookahead_threads = 1;
  param.i_sync_lookahead = 0;
  param.i_width = settings.width;
  param.i_height = settings.height;
  param.i_bitdepth = settings.bit_depth;
  param.i_csp = X264_CSP_I420 | (settings.bit_depth > 8 ? X264_CSP_HIGH_DEPTH : 0);
  param.b_vfr_input = 0;  // a frame's quality is not to depend on how long it is shown
  param.i_fps_num = static_cast<std::uint32_t>(settings.average_fps.num);
  param.i_fps_den = static_cast<std::uint32_t>(settings.average_fps.den);
  param.b_repeat_headers = 0;
  param.b_stitchable = 1;  // the parameter sets are to be those of the other episodes
  // Nothing is left to choose: a type, a start or a reference of the encoder's own would lengthen closures.
  param.i_frame_reference = 1;
  param.i_keyint_max = X264_KEYINT_MAX_INFINITE;
  param.i_keyint_min = 1;
  param.b_open_gop = 1;
  param.i_scenecut_threshold = 0;
  param.i_bframe = std::max(2, longest_b_run);  // at least 2, so that it does not change the parameter sets
  param.i_bframe_adaptive = X264_B_ADAPT_NONE;
  param.i_bframe_pyramid = settings.reference_b ? X264_B_PYRAMID_STRICT : X264_B_PYRAMID_NONE;
  param.b_full_recon = settings.shows_decoded ? 1 : 0;
  param.analyse.i_chroma_qp_offset = settings.chroma_qp_offset();
  param.rc.b_mb_tree = 1;
  param.rc.i_lookahead = std::max(param.rc.i_lookahead, param.i_bframe + 2);
  param.rc.i_rc_method = settings.qp ? X264_RC_CQP : X264_RC_CRF;
  param.rc.i_qp_constant = settings.qp.value_or(0);
  param.rc.f_rf_constant = static_cast<float>(settings.crf.value_or(0));
  set_colour(param, settings);
  return param;
}

struct CloseEncoder {
  void operator()(x264_t* encoder) const noexcept { x264_encoder_close(encoder); }
};

class X264Encoder final : public PictureEncoder {
 public:
  X264Encoder(const EncoderSettings& settings, int longest_b_run)
      : shows_decoded_(settings.shows_decoded),
        sample_bytes_(settings.bit_depth > 8 ? 2 : 1),
        chroma_width_bytes_(settings.width / 2 * static_cast<int>(sample_bytes_)),
        chroma_height_(settings.height / 2) {
    x264_param_t param = make_param(settings, longest_b_run);
    encoder_.reset(x264_encoder_open(&param));
    csp_ = param.i_csp;
    x264_param_cleanup(&param);
    if (encoder_ == nullptr) {
      throw std::invalid_argument("x264 refuses the settings");
    }
  }

  std::vector<std::uint8_t> parameter_sets() override {
    x264_nal_t* nals = nullptr;
    int count = 0;
    if (x264_encoder_headers(encoder_.get(), &nals, &count) < 0) {
      throw std::runtime_error("x264 gives no parameter sets");
    }
    std::vector<std::uint8_t> bytes;
    for (const x264_nal_t& nal : std::span(nals, static_cast<std::size_t>(count))) {
      if (nal.i_type == NAL_SPS || nal.i_type == NAL_PPS) {
        bytes.insert(bytes.end(), nal.p_payload, nal.p_payload + nal.i_payload);
      }
    }
    return bytes;
  }

  std::optional<CodedPicture> encode(const Planes& planes, PictureType type) override {
    x264_picture_t picture;
    x264_picture_init(&picture);
    picture.i_type = std::ranges::find(kTypes, type, &std::pair<PictureType, int>::first)->second;
    picture.i_pts = taken_++;
    picture.img.i_csp = csp_;
    picture.img.i_plane = 3;
    std::ranges::copy(planes.data, picture.img.plane);
    std::ranges::copy(planes.stride_bytes, picture.img.i_stride);
    return step(&picture);
  }

  std::optional<CodedPicture> flush() override {
    while (x264_encoder_delayed_frames(encoder_.get()) > 0) {
      if (auto coded = step(nullptr)) {
        return coded;
      }
    }
    return std::nullopt;
  }

 private:
  std::optional<CodedPicture> step(x264_picture_t* picture) {
    x264_nal_t* nals = nullptr;
    int count = 0;
    x264_picture_t out;
    const int size = x264_encoder_encode(encoder_.get(), &nals, &count, picture, &out);
    if (size < 0) {
      throw std::runtime_error("x264 fails to encode a frame");
    }
    if (size == 0) {
      return std::nullopt;
    }
    const auto* type = std::ranges::find(kTypes, out.i_type, &std::pair<PictureType, int>::second);
    // The payloads of one picture lie one after the other.
    CodedPicture coded{{nals[0].p_payload, nals[0].p_payload + size}, out.i_pts, type->first, {}};
    if (shows_decoded_) {
      separate_chroma(out.img);
      coded.decoded = {{out.img.plane[0], chroma_[0].data(), chroma_[1].data()},
                       {out.img.i_stride[0], chroma_width_bytes_, chroma_width_bytes_}};
    }
    return coded;
  }

  /// x264 holds the samples of Cb and Cr by turns.
  void separate_chroma(const x264_image_t& image) {
    const auto width_bytes = static_cast<std::size_t>(chroma_width_bytes_);
    for (std::size_t i = 0; i < 2; ++i) {
      chroma_[i].resize(width_bytes * static_cast<std::size_t>(chroma_height_));
      for (int y = 0; y < chroma_height_; ++y) {
        const std::uint8_t* row = image.plane[1] + static_cast<std::ptrdiff_t>(y) * image.i_stride[1];
        std::uint8_t* out = chroma_[i].data() + static_cast<std::size_t>(y) * width_bytes;
        for (std::size_t x = 0; x < width_bytes; x += sample_bytes_) {
          std::memcpy(out + x, row + 2 * x + i * sample_bytes_, sample_bytes_);
        }
      }
    }
  }

  std::unique_ptr<x264_t, CloseEncoder> encoder_;
  int csp_ = 0;
  bool shows_decoded_;
  std::size_t sample_bytes_;
  int chroma_width_bytes_;
  int chroma_height_;
  std::array<std::vector<std::uint8_t>, 2> chroma_;  // Cb and Cr of the last coded picture
  std::int64_t taken_ = 0;
};

}  // namespace

std::string_view x264_version() { return "x264 " X264_POINTVER; }

std::unique_ptr<PictureEncoder> make_x264_encoder(const EncoderSettings& settings, int longest_b_run) {
  return std::make_unique<X264Encoder>(settings, longest_b_run);
}

}  // namespace sparsevideo
