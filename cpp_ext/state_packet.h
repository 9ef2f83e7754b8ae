// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ffmpeg_handles.h"

namespace sparsevideo {

/// Cuts a packet down to what changes the decoder's state: every NAL unit that is not a slice in
/// full, and of each slice its header alone. A packet whose framing is not understood stays whole.
/// Of AV1 nothing is left but packets that show an existing frame, whole: others are not needed.
class StatePacketWriter {
 public:
  explicit StatePacketWriter(const AVCodecParameters& parameters);

  void set_extradata(std::span<const std::uint8_t> extradata);

  /// Notes a slice that the decoder reported of `packet`.
  void add_slice(const AVCodedUnit& unit, std::span<const std::uint8_t> packet);

  void forget_slices() { slices_.clear(); }

  /// Appends the cut-down packet to `out`, and forgets its slices.
  void write(std::span<const std::uint8_t> packet, std::vector<std::uint8_t>& out);

  /// Appends a NAL unit in the framing of the stream.
  void write_unit(std::span<const std::uint8_t> unit, std::vector<std::uint8_t>& out) const;

 private:
  struct Slice {
    std::size_t begin;
    std::size_t size;
    std::size_t header_size;  // escaped bytes
  };

  [[nodiscard]] std::size_t prefix_bytes(std::span<const std::uint8_t> packet, const Slice& slice) const;

  AVCodecID codec_;
  std::size_t length_bytes_ = 0;  // of the size before each NAL unit; 0 for start codes
  std::vector<Slice> slices_;
  bool shows_existing_ = false;  // the packet in hand, of AV1
};

}  // namespace sparsevideo
