// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "ffmpeg_handles.h"

namespace sparsevideo {

enum class DecoderMode {
  kIndex,       // headers only; frames come out as they would in a full decode
  kSparse,      // shows frames after any start, since the graph has proven them
  kContiguous,  // what any player does
};

/// FFmpeg's decoder on one thread, with the complaints that it makes while it works.
class PictureDecoder {
 public:
  using OnCodedUnit = std::function<void(const AVCodedUnit&)>;

  PictureDecoder(const AVCodecParameters& parameters, AVRational time_base, DecoderMode mode);

  /// Calls a function for every slice, parameter set and end of sequence that is sent; nullptr: no more.
  void report_units_to(OnCodedUnit on_coded_unit);

  /// Sends a packet, or nullptr to drain. False if the decoder refused it (a complaint is noted).
  bool send(const AVPacket* packet);

  /// Takes the next finished frame; false when more packets are needed or all are out.
  bool receive(AVFrame& frame);

  /// From now on, pictures can be kept in an AnchorCache.
  void export_picture_state() { context_->export_side_data |= AV_CODEC_EXPORT_DATA_PICTURE_STATE; }

  /// Forgets all pictures, but not what was said about the stream.
  void flush() { avcodec_flush_buffers(context_.get()); }

  /// Returns what the decoder complained about since the last call, or "".
  std::string take_complaint();

  [[nodiscard]] int reorder_depth() const { return context_->has_b_frames; }
  [[nodiscard]] int x264_build() const;
  /// Tell the decoder what it would know had it seen the stream from its beginning.
  void set_reorder_depth(int frames) { context_->has_b_frames = frames; }
  void set_x264_build(int build);

 private:
  static void report_unit(AVCodecContext* context, const AVCodedUnit* unit);

  CodecContextPtr context_;
  OnCodedUnit on_coded_unit_;
  std::string complaint_;
};

/// Whether the decoder of this codec reports its references (the patched ones do). That of AV1 has
/// its headers read beside it, by a reader that may refuse what the decoder takes.
bool reports_references(AVCodecID codec);

}  // namespace sparsevideo
