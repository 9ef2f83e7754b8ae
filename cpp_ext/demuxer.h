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
  /// Keeps a reference to `source`. Throws Error(kFormat) if there is no video stream in it.
  explicit Demuxer(ByteSource& source);

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

  ByteSource& source_;
  std::uint64_t position_ = 0;
  std::exception_ptr read_error_;
  IoContextPtr io_;
  FormatContextPtr format_;
  AVStream* stream_ = nullptr;
};

}  // namespace sparsevideo
