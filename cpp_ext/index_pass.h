// SPDX-License-Identifier: Apache-2.0
// How a StreamIndex is made.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "demuxer.h"
#include "picture_decoder.h"
#include "state_packet.h"
#include "stream_index.h"

namespace sparsevideo {

/// What one packet turned out to hold.
struct PictureFacts {
  std::vector<std::int32_t> references;
  std::vector<std::int32_t> retained;
  std::uint64_t lists_hash = 0;
  int structures = 0;     // 1 top field, 2 bottom field, 3 both
  int common_flags = ~0;  // AV_CODED_UNIT_* that all its slices have
  bool has_slices = false;
  bool has_state_units = false;  // parameter sets, an end of sequence, new extradata
  std::uint8_t traits = 0;
  std::string doubt;  // why its references are not known for sure

  void merge(const PictureFacts& field) {
    references.insert(references.end(), field.references.begin(), field.references.end());
    retained.insert(retained.end(), field.retained.begin(), field.retained.end());
    lists_hash = field.lists_hash;
    structures |= field.structures;
    common_flags &= field.common_flags;
    has_state_units |= field.has_state_units;
    traits |= static_cast<std::uint8_t>(field.traits & ~PictureTraits::kKey);
    if (doubt.empty()) {
      doubt = field.doubt;
    }
  }
};

/// Runs the pass. Lives only as long as the constructor of StreamIndex.
class StreamIndex::Pass {
 public:
  Pass(StreamIndex& index, ByteSource& source);
  void run();
  /// Whether the decoder showed fewer frames than it should, because it learnt too late how far
  /// they are reordered.
  [[nodiscard]] bool learnt_reorder_depth() const;
  /// Whether only a decoder that decodes can tell which pictures it shows. The pass stopped there.
  [[nodiscard]] bool found_layers() const { return found_layers_; }

 private:
  void add_packet();
  bool precedes_first_irap();
  void parse_packet();
  void on_coded_unit(const AVCodedUnit& unit);
  void on_slice(const AVCodedUnit& unit);
  void take_frames();
  void watch_x264_build();
  void finish_picture();
  [[nodiscard]] bool all_slices(int flag) const;
  [[nodiscard]] bool is_disposable() const;
  [[nodiscard]] bool is_start(std::int32_t picture) const;
  [[nodiscard]] bool keys_are_starts() const;
  void doubt(std::string reason);
  void find_disposable_pictures();
  void time_frames();

  [[nodiscard]] std::int32_t packet_number() const {
    return static_cast<std::int32_t>(index_.packets_.size()) - 1;
  }
  [[nodiscard]] std::span<const std::uint8_t> packet_bytes() const {
    return {packet_->data, static_cast<std::size_t>(packet_->size)};
  }

  StreamIndex& index_;
  Demuxer demuxer_;
  StatePacketWriter state_writer_;
  std::unique_ptr<PictureDecoder> decoder_;
  PacketPtr packet_ = make_packet();
  FramePtr frame_ = make_frame();
  PictureFacts picture_;  // the picture that the packets so far ended with
  PictureFacts facts_;    // of the packet in hand
  bool is_av1_;
  bool found_layers_ = false;
  bool found_start_ = false;
  bool continues_ = false;   // the packet in hand is the second field of picture_
  std::vector<bool> shown_;  // packets whose frame has come out
  std::vector<bool> used_;   // pictures that a later one refers to or retains
  int reorder_depth_at_first_ = 0;
  int lowest_x264_build_ = std::numeric_limits<int>::max();
  int highest_x264_build_ = -1;
};

}  // namespace sparsevideo
