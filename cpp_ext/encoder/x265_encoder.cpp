// SPDX-License-Identifier: GPL-2.0-or-later
#include <x265.h>

#include <algorithm>
#include <mutex>
#include <span>
#include <stdexcept>
#include <utility>

#include "encoder/picture_encoder.h"

namespace sparsevideo {
namespace {

constexpr std::array<std::pair<PictureType, int>, 5> kTypes{{{PictureType::kIdr, X265_TYPE_IDR},
                                                             {PictureType::kIntra, X265_TYPE_I},
                                                             {PictureType::kInter, X265_TYPE_P},
                                                             {PictureType::kReferenceB, X265_TYPE_BREF},
                                                             {PictureType::kB, X265_TYPE_B}}};

void set_colour(x265_param& param, const EncoderSettings& settings) {
  auto& vui = param.vui;
  vui.bEnableVideoSignalTypePresentFlag =
      settings.has_colour() || settings.color_range != AVCOL_RANGE_UNSPECIFIED ? 1 : 0;
  vui.bEnableVideoFullRangeFlag = settings.color_range == AVCOL_RANGE_JPEG ? 1 : 0;
  vui.bEnableColorDescriptionPresentFlag = settings.has_colour() ? 1 : 0;
  vui.colorPrimaries = settings.color_primaries;
  vui.transferCharacteristics = settings.color_trc;
  vui.matrixCoeffs = settings.color_space;
  if (settings.chroma_location != AVCHROMA_LOC_UNSPECIFIED) {
    vui.bEnableChromaLocInfoPresentFlag = 1;
    vui.chromaSampleLocTypeTopField = settings.chroma_location - 1;
    vui.chromaSampleLocTypeBottomField = settings.chroma_location - 1;
  }
  if (settings.sample_aspect_ratio.num > 0) {
    vui.aspectRatioIdc = X265_EXTENDED_SAR;
    vui.sarWidth = settings.sample_aspect_ratio.num;
    vui.sarHeight = settings.sample_aspect_ratio.den;
  }
}

/// Blocks no larger than the picture; x265 refuses others.
std::uint32_t block_size(const EncoderSettings& settings, std::uint32_t preferred) {
  const auto smallest_side = static_cast<std::uint32_t>(std::min(settings.width, settings.height));
  while (preferred > 16 && preferred > smallest_side) {
    preferred /= 2;
  }
  return preferred;
}

void set_param(x265_param& param, const EncoderSettings& settings, int longest_b_run) {
  param.logLevel = X265_LOG_NONE;
  param.frameNumThreads = std::clamp(settings.num_threads, 1, X265_MAX_FRAME_THREADS);
  param.sourceWidth = settings.width;
  param.sourceHeight = settings.height;
  param.maxCUSize = block_size(settings, param.maxCUSize);
  param.internalCsp = X265_CSP_I420;
  param.fpsNum = static_cast<std::uint32_t>(settings.average_fps.num);
  param.fpsDenom = static_cast<std::uint32_t>(settings.average_fps.den);
  param.log2MaxPocLsb = 10;  // enough for any run of B pictures: the parameter sets are those of all episodes
  param.bRepeatHeaders = 0;
  param.bEmitInfoSEI = 0;
  // Nothing is left to choose: a type, a start or a reference of the encoder's own would lengthen closures.
  param.maxNumReferences = 1;
  param.keyframeMax = -1;
  param.keyframeMin = 1;
  param.bOpenGOP = 1;
  param.scenecutThreshold = 0;
  param.bframes = std::max(2, longest_b_run);  // at least 2, so that it does not change the parameter sets
  param.bFrameAdaptive = X265_B_ADAPT_NONE;
  param.bBPyramid = settings.reference_b ? 1 : 0;
  param.lookaheadDepth = std::max(param.lookaheadDepth, param.bframes + 2);
  param.cbQpOffset = settings.chroma_qp_offset();
  param.crQpOffset = settings.chroma_qp_offset();
  param.rc.cuTree = settings.qp ? 0 : 1;
  param.rc.rateControlMode = settings.qp ? X265_RC_CQP : X265_RC_CRF;
  param.rc.qp = settings.qp.value_or(0);
  param.rc.rfConstant = settings.crf.value_or(0);
  set_colour(param, settings);
}

class X265Encoder final : public PictureEncoder {
 public:
  X265Encoder(const EncoderSettings& settings, int longest_b_run)
      : api_(x265_api_get(settings.bit_depth)), bit_depth_(settings.bit_depth) {
    if (api_ == nullptr) {
      throw std::invalid_argument("x265 is built without a bit depth of " + std::to_string(bit_depth_));
    }
    param_.reset(api_->param_alloc());
    param_.get_deleter().api = api_;
    check_allocated(param_.get());
    const char* tune = settings.tune.empty() ? nullptr : settings.tune.c_str();
    if (api_->param_default_preset(param_.get(), settings.preset.c_str(), tune) < 0) {
      throw std::invalid_argument("x265 has no preset " + settings.preset + ", or no tune " + settings.tune);
    }
    set_param(*param_, settings, longest_b_run);
    const std::string pool = settings.num_threads > 1 ? std::to_string(settings.num_threads) : "none";
    api_->param_parse(param_.get(), "pools", pool.c_str());
    const std::lock_guard lock(global_state());
    encoder_.reset(api_->encoder_open(param_.get()));
    encoder_.get_deleter().api = api_;
    if (encoder_ == nullptr) {
      throw std::invalid_argument("x265 refuses the settings");
    }
  }

  std::vector<std::uint8_t> parameter_sets() override {
    x265_nal* nals = nullptr;
    std::uint32_t count = 0;
    if (api_->encoder_headers(encoder_.get(), &nals, &count) < 0) {
      throw std::runtime_error("x265 gives no parameter sets");
    }
    return joined({nals, count});
  }

  std::optional<CodedPicture> encode(const Planes& planes, PictureType type) override {
    x265_picture picture;
    api_->picture_init(param_.get(), &picture);
    picture.sliceType = std::ranges::find(kTypes, type, &std::pair<PictureType, int>::first)->second;
    picture.pts = taken_++;
    picture.bitDepth = bit_depth_;
    picture.colorSpace = X265_CSP_I420;
    std::ranges::copy(planes.data, picture.planes);
    std::ranges::copy(planes.stride_bytes, picture.stride);
    return step(&picture);
  }

  std::optional<CodedPicture> flush() override { return step(nullptr); }

 private:
  struct FreeParam {
    const x265_api* api;
    void operator()(x265_param* param) const noexcept { api->param_free(param); }
  };
  struct CloseEncoder {
    const x265_api* api;
    void operator()(x265_encoder* encoder) const noexcept {
      const std::lock_guard lock(global_state());
      api->encoder_close(encoder);
    }
  };

  /// x265 fills its tables when the first encoder is opened.
  static std::mutex& global_state() {
    static std::mutex mutex;
    return mutex;
  }

  static std::vector<std::uint8_t> joined(std::span<const x265_nal> nals) {
    std::vector<std::uint8_t> bytes;
    for (const x265_nal& nal : nals) {
      bytes.insert(bytes.end(), nal.payload, nal.payload + nal.sizeBytes);
    }
    return bytes;
  }

  std::optional<CodedPicture> step(x265_picture* picture) {
    x265_nal* nals = nullptr;
    std::uint32_t count = 0;
    x265_picture out;
    api_->picture_init(param_.get(), &out);
    x265_picture* outs = &out;
    const int coded = api_->encoder_encode(encoder_.get(), &nals, &count, picture, outs);
    if (coded < 0) {
      throw std::runtime_error("x265 fails to encode a frame");
    }
    if (coded == 0) {
      return std::nullopt;
    }
    const auto* type = std::ranges::find(kTypes, out.sliceType, &std::pair<PictureType, int>::second);
    CodedPicture picture_out{joined({nals, count}), out.pts, type->first, {}};
    for (std::size_t i = 0; i < 3; ++i) {
      picture_out.decoded.data[i] = static_cast<std::uint8_t*>(out.planes[i]);
      picture_out.decoded.stride_bytes[i] = out.stride[i];
    }
    return picture_out;
  }

  const x265_api* api_;
  int bit_depth_;
  std::unique_ptr<x265_param, FreeParam> param_;
  std::unique_ptr<x265_encoder, CloseEncoder> encoder_;
  std::int64_t taken_ = 0;
};

}  // namespace

std::string x265_version() { return std::string("x265 ") + x265_version_str; }

std::unique_ptr<PictureEncoder> make_x265_encoder(const EncoderSettings& settings, int longest_b_run) {
  return std::make_unique<X265Encoder>(settings, longest_b_run);
}

}  // namespace sparsevideo
