// SPDX-License-Identifier: GPL-2.0-or-later
// Encodes frames to learn what they cost and how they come out.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "encoder/picture_encoder.h"

namespace sparsevideo {

/// Of each frame, in presentation order.
struct Trial {
  std::vector<std::int64_t> size_bytes;
  std::vector<std::array<double, 3>> squared_error;  // mean of Y, Cb and Cr, in units of 8-bit samples
};

/// An episode that is written nowhere.
class TrialEncoder {
 public:
  /// Throws std::invalid_argument when the settings make no encoder, or the types no episode.
  TrialEncoder(EncoderSettings settings, std::vector<PictureType> types);

  void add_frame(const Planes& planes);

  /// Throws std::invalid_argument when there were more or fewer frames than types.
  Trial finish();

 private:
  void keep(const std::optional<CodedPicture>& picture);
  [[nodiscard]] std::size_t sample_bytes() const;

  EncoderSettings settings_;
  std::vector<PictureType> types_;
  std::unique_ptr<PictureEncoder> encoder_;
  std::vector<std::array<std::vector<std::uint8_t>, 3>>
      frames_;  // those that are not out yet; others are empty
  Trial trial_;
};

}  // namespace sparsevideo
