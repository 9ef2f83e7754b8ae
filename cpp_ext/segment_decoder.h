// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "anchor_cache.h"
#include "packet_reader.h"
#include "picture_decoder.h"
#include "plan.h"
#include "stream_index.h"

namespace sparsevideo {

struct DecodeStats;

/// Decodes segments, each with one decoder, and falls back to safer ways where that leaves doubts.
///
/// First as planned. If the decoder complains, shows other reference lists than the index recorded,
/// or a target does not come out, what is still missing is decoded from the last reset on with
/// nothing left out, and at last from the beginning of the stream. Pictures that are
/// damaged even then, or that predict from a damaged one, are failures.
class SegmentDecoder {
 public:
  struct Callbacks {
    std::function<void(std::int32_t picture, const AVFrame& frame)> on_frame;
    std::function<void(std::int32_t picture, const Error& cause)> on_failure;
    std::function<void()> poll;  // called before each picture; what it throws ends the decode
    // A picture that others were predicted from, to be kept; may be empty.
    std::function<void(std::int32_t picture, const AVFrame& frame)> on_anchor;
  };

  /// `anchors` holds the pictures whose outcome is kRestore.
  SegmentDecoder(ByteSource& source, const StreamIndex& index, const Anchors& anchors, DecodeStats& stats,
                 Callbacks callbacks);

  void decode(const Segment& segment);

 private:
  class Run;
  using Wanted = std::set<std::int32_t>;

  enum class Trust {
    kPlanned,     // any doubt ends the run
    kContiguous,  // pictures with doubts, and those that predict from them, are left out
    kSequential,  // the same, and frames are told by counting from the first one
  };

  // Each takes what comes out from the set. attempt() tells whether some of the rest is not known
  // to be damaged.
  bool attempt(const Segment& segment, Trust trust, Wanted& wanted);
  void attempt_all(const Segment& segment, Wanted& missing);

  std::unique_ptr<PictureDecoder> take_decoder(DecoderMode mode);

  ByteSource& source_;
  const StreamIndex& index_;
  const Anchors& anchors_;
  DecodeStats& stats_;
  Callbacks callbacks_;
  std::map<std::int32_t, std::string> causes_;  // why a picture did not come out at the last attempt
  // Kept from one planned run to the next: what costs is its memory, and its pictures are forgotten.
  std::unique_ptr<PictureDecoder> idle_decoder_;
};

}  // namespace sparsevideo
