// SPDX-License-Identifier: GPL-2.0-or-later
#include "encoder/trial_encoder.h"

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace sparsevideo {
namespace {

/// Of samples that lie without gaps in `one`, and in rows of `stride_bytes` in `other`.
template <typename Sample>
double squared_error(const std::uint8_t* one, const std::uint8_t* other, int stride_bytes, int width,
                     int height) {
  std::uint64_t sum = 0;
  for (int y = 0; y < height; ++y) {
    const auto* a = reinterpret_cast<const Sample*>(one) + static_cast<std::ptrdiff_t>(y) * width;
    const auto* b = reinterpret_cast<const Sample*>(other + static_cast<std::ptrdiff_t>(y) * stride_bytes);
    std::uint64_t row = 0;
    for (int x = 0; x < width; ++x) {
      const int difference = a[x] - b[x];
      row += static_cast<std::uint64_t>(difference * difference);
    }
    sum += row;
  }
  return static_cast<double>(sum) / (static_cast<double>(width) * height);
}

}  // namespace

TrialEncoder::TrialEncoder(EncoderSettings settings, std::vector<PictureType> types)
    : settings_(std::move(settings)), types_(std::move(types)) {
  settings_.shows_decoded = true;
  check_settings(settings_);
  check_types(types_, settings_.reference_b);
  encoder_ = make_encoder(settings_, types_);
  trial_.size_bytes.resize(types_.size());
  trial_.squared_error.resize(types_.size());
}

std::size_t TrialEncoder::sample_bytes() const { return settings_.bit_depth > 8 ? 2 : 1; }

void TrialEncoder::add_frame(const Planes& planes) {
  if (frames_.size() == types_.size()) {
    throw std::invalid_argument("more frames than types");
  }
  auto& frame = frames_.emplace_back();
  for (std::size_t i = 0; i < 3; ++i) {
    const int shift = i == 0 ? 0 : 1;
    const std::size_t row_bytes = static_cast<std::size_t>(settings_.width >> shift) * sample_bytes();
    const int height = settings_.height >> shift;
    frame[i].resize(row_bytes * static_cast<std::size_t>(height));
    std::uint8_t* out = frame[i].data();
    for (int y = 0; y < height; ++y, out += row_bytes) {
      std::memcpy(out, planes.data[i] + static_cast<std::ptrdiff_t>(y) * planes.stride_bytes[i], row_bytes);
    }
  }
  keep(encoder_->encode(planes, types_[frames_.size() - 1]));
}

Trial TrialEncoder::finish() {
  if (frames_.size() != types_.size()) {
    throw std::invalid_argument(std::to_string(frames_.size()) + " frames for " +
                                std::to_string(types_.size()) + " types");
  }
  while (const auto picture = encoder_->flush()) {
    keep(picture);
  }
  return std::move(trial_);
}

void TrialEncoder::keep(const std::optional<CodedPicture>& picture) {
  if (!picture) {
    return;
  }
  const auto number = static_cast<std::size_t>(picture->frame);
  trial_.size_bytes.at(number) = static_cast<std::int64_t>(picture->bytes.size());
  for (std::size_t i = 0; i < 3; ++i) {
    const auto measure = settings_.bit_depth > 8 ? squared_error<std::uint16_t> : squared_error<std::uint8_t>;
    const int shift = i == 0 ? 0 : 1;
    const double error =
        measure(frames_[number][i].data(), picture->decoded.data[i], picture->decoded.stride_bytes[i],
                settings_.width >> shift, settings_.height >> shift);
    const double unit = 1 << (settings_.bit_depth - 8);
    trial_.squared_error[number][i] = error / (unit * unit);
    frames_[number][i] = {};
  }
}

}  // namespace sparsevideo
