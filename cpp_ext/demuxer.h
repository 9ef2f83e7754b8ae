// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

#include "byte_source.h"
#include "ffmpeg_handles.h"

namespace sparsevideo {

/// One pass over the packets of a shard's video stream, from the first packet to the last.
///
/// The video stream is the one that FFmpeg would choose to play, cover pictures left aside.
class Demuxer {
 public:
  /// Keeps a reference to `source`. With `split_units` a packet of AV1 holds one frame, with what
  /// stands around it in its temporal unit. Throws Error(kFormat) if there is no video stream in it.
  Demuxer(ByteSource& source, bool split_units);

  /// Reads the next packet of the video stream; false at the end of the file.
  bool read(AVPacket& packet);

  [[nodiscard]] const AVStream& stream() const { return *stream_; }
  [[nodiscard]] AVRational average_fps() const;
  [[nodiscard]] int rotation_degrees() const;

  /// Whether a packet's bytes are the file's bytes [pos, pos + size).
  [[nodiscard]] bool packets_are_byte_ranges() const;

 private:
  static int read_packet(void* opaque, std::uint8_t* buffer, int size);
  static std::int64_t seek(void* opaque, std::int64_t offset, int whence);
  void rethrow_read_error();
  bool read_from_container(AVPacket& packet);

  ByteSource& source_;
  std::uint64_t position_ = 0;
  std::exception_ptr read_error_;
  IoContextPtr io_;
  FormatContextPtr format_;
  AVStream* stream_ = nullptr;
  BitstreamFilterPtr splitter_;               // of temporal units
  const std::uint8_t* unit_bytes_ = nullptr;  // of the temporal unit that is being split
};

}  // namespace sparsevideo
