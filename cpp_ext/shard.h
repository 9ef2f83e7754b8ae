// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "byte_source.h"
#include "error.h"
#include "plan.h"
#include "rgb_converter.h"
#include "stream_index.h"

namespace sparsevideo {

struct DecodeStats {
  std::int64_t requested = 0;      // frames asked for, repeats counted
  std::int64_t unique = 0;         // different frames
  std::int64_t reconstructed = 0;  // pictures decoded in full
  std::int64_t state_only = 0;     // pictures of which only the headers were decoded
  std::int64_t dropped = 0;        // pictures between these that were never sent
  std::int64_t restored = 0;       // pictures taken from the anchor cache
  std::int64_t segments = 0;
  std::int64_t bytes_read = 0;
  std::int64_t fallbacks = 0;  // segments that were decoded again in a safer way
};

struct FrameFailure {
  std::size_t request = 0;  // position in the request
  Error cause;
};

struct DecodeResult {
  DecodeStats stats;
  std::vector<FrameFailure> failures;
};

struct DecodePlan {
  DecodeStats stats;  // what a decode would count if nothing is damaged
  std::vector<Segment> segments;

  /// The pictures whose samples are needed, each once, ascending: the closure of the targets.
  [[nodiscard]] std::vector<std::int32_t> reconstructed() const;
};

/// Where and how the frames of a request are written.
struct Output {
  std::uint8_t* data;
  std::span<const std::int64_t> offsets;  // of each requested frame, in bytes
  FrameSize size;                         // {0, 0}: each frame's own
  bool apply_rotation = false;
  PixelMode mode = PixelMode::kRgb;
};

/// What one frame would take, and how it would be decoded.
struct FrameCost {
  std::int64_t pictures;  // reconstructed for this frame alone
  std::int64_t bytes;     // of these pictures
  std::int64_t added;     // of these pictures, those that no earlier frame of the request needs
  std::int32_t segment;   // first picture of the segment that serves it together with the others
  bool sparse;            // pictures that it does not need are left out
};

/// One opened video file: its bytes and its index. Decodes may run on several threads at once.
class Shard {
 public:
  explicit Shard(std::unique_ptr<ByteSource> source);
  Shard(std::unique_ptr<ByteSource> source, const IndexContents& contents);
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;
  ~Shard();

  [[nodiscard]] const StreamIndex& index() const { return index_; }
  [[nodiscard]] ByteSource& source() { return *source_; }

  /// Frame numbers are in [0, index().frames().size()), in any order, repeated or not.
  [[nodiscard]] DecodePlan plan(std::span<const std::int64_t> frames) const;

  /// One entry a requested frame; anchors that are kept do not count.
  [[nodiscard]] std::vector<FrameCost> explain(std::span<const std::int64_t> frames) const;

  /// Decodes and converts the frames. What is damaged is told as failures, and its bytes are zero. `poll`
  /// is called before each picture, from any thread; what it throws ends the decode.
  DecodeResult decode(std::span<const std::int64_t> frames, const Output& output, int max_threads,
                      const std::function<void()>& poll);

 private:
  [[nodiscard]] DecodePlan plan(std::span<const std::int64_t> frames, const KeptPictures& kept) const;
  void check_frames(std::span<const std::int64_t> frames) const;

  std::unique_ptr<ByteSource> source_;
  StreamIndex index_;
  std::uint64_t id_;  // no other shard of this process has it
};

}  // namespace sparsevideo
