// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "demuxer.h"
#include "ffmpeg_handles.h"
#include "index_contents.h"
#include "plan.h"
#include "reference_graph.h"

namespace sparsevideo {

/// One packet of the video stream, in file order. Of AV1 with a graph: one frame with the OBUs before it.
struct PacketRecord {
  std::int64_t pts;
  std::int64_t dts;
  std::int64_t position;  // of its first byte in the file; -1 if the container does not say
  std::uint32_t size_bytes;
  std::uint32_t checksum;     // Adler-32 of its bytes
  std::int32_t picture;       // the coded picture that it belongs to
  std::uint64_t state_begin;  // its header bytes are state_bytes[state_begin, state_begin + state_size)
  std::uint32_t state_size;
};

/// One coded picture, in decode order: a packet, two that hold the fields of one frame, or a packet
/// that shows nothing.
struct PictureRecord {
  std::int32_t first_packet;
  std::int32_t packet_count;
  std::uint32_t lists_hash;  // of the reference lists of its slices, see hash_references()
};

/// One frame that a player would show, in presentation order.
struct FrameRecord {
  std::int64_t pts;
  std::int64_t duration;  // to the next frame's pts
  std::int32_t picture;
  std::int32_t width;
  std::int32_t height;
};

/// Everything about a shard's video stream that decoding any of its frames needs, but the pixels.
///
/// Made in one pass over all packets, or taken from an index file. In a pass H.264, HEVC and AV1 pictures
/// are parsed but not reconstructed; the decoder itself says which pictures each one predicts from. Other
/// codecs are decoded for it.
class StreamIndex {
 public:
  explicit StreamIndex(ByteSource& source);
  /// The index that an index file holds of `source`; reads none of its packets. Throws Error(kIndex) if it
  /// was made of another file, or its numbers do not agree with each other.
  StreamIndex(const IndexContents& contents, ByteSource& source);
  StreamIndex(const StreamIndex&) = delete;
  StreamIndex& operator=(const StreamIndex&) = delete;
  StreamIndex(StreamIndex&&) = delete;
  ~StreamIndex() = default;

  [[nodiscard]] const AVCodecParameters& parameters() const { return *parameters_; }
  [[nodiscard]] AVRational time_base() const { return time_base_; }
  [[nodiscard]] AVRational average_fps() const { return average_fps_; }
  [[nodiscard]] int rotation_degrees() const { return rotation_degrees_; }
  /// How many frames the decoder holds back to put them in order, at most.
  [[nodiscard]] int reorder_depth() const { return reorder_depth_; }
  /// The same when it starts at the first picture; -1: as the container has it.
  [[nodiscard]] int first_reorder_depth() const { return first_reorder_depth_; }
  [[nodiscard]] int x264_build() const { return x264_build_; }

  /// Whether every picture's references are known; if not, fallback_reason() says what is not.
  [[nodiscard]] bool has_graph() const { return fallback_reason_.empty(); }
  [[nodiscard]] const std::string& fallback_reason() const { return fallback_reason_; }
  /// Whether the decoder reports references for this codec at all.
  [[nodiscard]] bool codec_has_graph() const { return codec_has_graph_; }
  /// Whether a frame can be told by the packet that its decoder names; if not, only by counting.
  [[nodiscard]] bool frames_name_packets() const { return frames_name_packets_; }
  [[nodiscard]] bool packets_are_byte_ranges() const { return packets_are_byte_ranges_; }

  /// The first picture that is ever decoded.
  [[nodiscard]] std::int32_t first_picture() const { return first_picture_; }

  [[nodiscard]] std::span<const PacketRecord> packets() const { return packets_; }
  [[nodiscard]] std::span<const PictureRecord> pictures() const { return pictures_; }
  [[nodiscard]] std::span<const FrameRecord> frames() const { return frames_; }
  [[nodiscard]] std::span<const std::uint8_t> traits() const { return traits_; }
  [[nodiscard]] std::span<const std::int64_t> picture_pts() const { return picture_pts_; }
  [[nodiscard]] const ReferenceGraph& graph() const { return graph_; }
  [[nodiscard]] const Planner& planner() const { return *planner_; }

  [[nodiscard]] std::span<const std::uint8_t> state_bytes(const PacketRecord& packet) const {
    return std::span(state_bytes_).subspan(packet.state_begin, packet.state_size);
  }
  /// Parameter sets seen before `picture`, each once, in the framing of the stream.
  [[nodiscard]] std::vector<std::uint8_t> parameter_sets_before(std::int32_t picture) const;
  /// The last change of the codec's extradata up to and with `picture`, or empty.
  [[nodiscard]] std::span<const std::uint8_t> extradata_at(std::int32_t picture) const;
  [[nodiscard]] bool changes_extradata_at(std::int32_t picture) const;

  [[nodiscard]] std::size_t size_bytes() const;

  /// What an index file keeps of the index of `source`. Throws Error(kIndex) for the rare stream that shows
  /// a coded picture more than once.
  [[nodiscard]] IndexContents contents(ByteSource& source) const;

 private:
  class Pass;
  class Import;

  StreamIndex() = default;
  StreamIndex& operator=(StreamIndex&&) = default;

  void export_facts(IndexContents& contents) const;
  void export_packet(std::size_t number, IndexContents& contents) const;

  CodecParametersPtr parameters_;
  AVRational time_base_ = {};
  AVRational average_fps_ = {};
  int rotation_degrees_ = 0;
  int reorder_depth_ = 0;
  int first_reorder_depth_ = -1;
  int x264_build_ = -1;
  std::int32_t first_picture_ = 0;
  bool codec_has_graph_ = false;
  bool frames_name_packets_ = true;
  bool packets_are_byte_ranges_ = false;
  std::string fallback_reason_;
  std::vector<PacketRecord> packets_;
  std::vector<PictureRecord> pictures_;
  std::vector<FrameRecord> frames_;
  std::vector<std::uint8_t> traits_;
  std::vector<std::int64_t> picture_pts_;
  std::vector<std::uint8_t> state_bytes_;
  std::vector<StateEvent> parameter_sets_;
  std::vector<StateEvent> extradata_changes_;
  ReferenceGraph graph_;
  std::unique_ptr<Planner> planner_;
};

/// What PacketRecord::checksum holds.
std::uint32_t checksum(std::span<const std::uint8_t> bytes);

/// The packet number that was sent with the packet behind `frame`.
std::int32_t packet_of(const AVFrame& frame);
void name_packet(AVPacket& packet, std::int32_t number);

std::span<const AVCodedReference> references_of(const AVCodedUnit& unit);

/// Continues `hash` with the reference lists of a slice of `picture`: which pictures, in which
/// order, how far away in output order, long-term or not. Two decodes of a picture whose hashes
/// agree predict from the same pictures in the same way.
std::uint64_t hash_references(std::uint64_t hash, const AVCodedUnit& unit, std::int32_t picture,
                              std::span<const PacketRecord> packets);

/// What PictureRecord::lists_hash holds of such a hash.
std::uint32_t folded(std::uint64_t hash);

/// Whether a list of the slice holds a picture that the decoder had to make up.
bool has_missing_reference(const AVCodedUnit& unit);

}  // namespace sparsevideo
