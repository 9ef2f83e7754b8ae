// SPDX-License-Identifier: GPL-2.0-or-later
#include "encoder/picture_encoder.h"

#include <algorithm>
#include <stdexcept>

namespace sparsevideo {
namespace {

void require(bool holds, const std::string& text) {
  if (!holds) {
    throw std::invalid_argument(text);
  }
}

bool is_b(PictureType type) { return type == PictureType::kB || type == PictureType::kReferenceB; }

int longest_b_run(const std::vector<PictureType>& types) {
  int longest = 0;
  int run = 0;
  for (const PictureType type : types) {
    run = is_b(type) ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return longest;
}

}  // namespace

void check_settings(const EncoderSettings& settings) {
  const std::string size = std::to_string(settings.width) + "x" + std::to_string(settings.height);
  require(settings.width > 0 && settings.height > 0, "a picture of " + size + " has no pixels");
  require(
      settings.width % 2 == 0 && settings.height % 2 == 0,
      size +
          " is odd: 4:2:0 pictures have one chroma sample for 2x2 pixels, crop or pad to even sizes first");
  require(settings.bit_depth == 8 || settings.bit_depth == 10,
          "bit_depth is " + std::to_string(settings.bit_depth) + "; it must be 8 or 10");
  require(settings.crf.has_value() != settings.qp.has_value(), "one of crf and qp must be given");
  const double quantiser = settings.crf.value_or(settings.qp.value_or(0));
  require(quantiser >= 0 && quantiser <= 51, "crf and qp must lie in [0, 51]");
  // Below 1, x264 codes without loss, and then without B pictures.
  require(settings.codec == AV_CODEC_ID_HEVC || quantiser >= 1, "crf and qp of H.264 must lie in [1, 51]");
  require(settings.average_fps.num > 0 && settings.average_fps.den > 0, "average_fps must be positive");
  require(settings.num_threads > 0, "num_threads must be at least 1");
}

void check_types(const std::vector<PictureType>& types, bool reference_b) {
  require(!types.empty(), "an episode has at least one frame");
  require(types.front() == PictureType::kIdr, "the first frame's type must be I");
  require(!is_b(types.back()), "the last frame's type can't be B or b: nothing comes after it to refer to");
  for (std::size_t i = 1; i < types.size(); ++i) {
    require(types[i] != PictureType::kIdr || !is_b(types[i - 1]),
            "frame " + std::to_string(i) + " is an I after a B: nothing before an I refers to it");
  }
  require(reference_b || std::ranges::find(types, PictureType::kReferenceB) == types.end(),
          "a type is B, which needs reference_b=True");
}

std::unique_ptr<PictureEncoder> make_encoder(const EncoderSettings& settings,
                                             const std::vector<PictureType>& types) {
  const int longest = longest_b_run(types);
  return settings.codec == AV_CODEC_ID_HEVC ? make_x265_encoder(settings, longest)
                                            : make_x264_encoder(settings, longest);
}

std::string encoder_version(AVCodecID codec) {
  return codec == AV_CODEC_ID_HEVC ? x265_version() : std::string(x264_version());
}

}  // namespace sparsevideo
