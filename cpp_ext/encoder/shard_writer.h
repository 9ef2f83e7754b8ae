// SPDX-License-Identifier: GPL-2.0-or-later
// Writes a shard: an MP4 file of episodes, each coded by an encoder of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "encoder/picture_encoder.h"

namespace sparsevideo {

struct FreeMuxer {
  void operator()(AVFormatContext* context) const noexcept {
    avio_closep(&context->pb);
    avformat_free_context(context);
  }
};
using MuxerPtr = std::unique_ptr<AVFormatContext, FreeMuxer>;

/// When the frames of an episode are shown, and what becomes of each.
struct EpisodePlan {
  std::vector<std::int64_t> pts;   // in the shard's time base, rising
  std::vector<PictureType> types;  // one a frame, in presentation order; the first is kIdr, the last no B
  std::int64_t end_pts = 0;        // where the last frame's display ends
};

/// What the file says besides the stream.
struct Container {
  int rotation = 0;         // degrees clockwise by which a player is to turn the pictures
  bool fragmented = false;  // a fragment for each episode; otherwise one header, which comes first
};

/// The file is removed again unless `close` completes it.
class ShardWriter {
 public:
  /// Throws std::invalid_argument when the settings make no stream.
  ShardWriter(std::string path, EncoderSettings settings, AVRational time_base, Container container);
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;
  ~ShardWriter();

  [[nodiscard]] const EncoderSettings& settings() const { return settings_; }

  /// Starts an episode. What an unfinished one before it has encoded is thrown away.
  void begin_episode(EpisodePlan plan);

  /// Encodes the next frame of the episode.
  void add_frame(const Planes& planes);

  /// Writes the episode, all of whose frames were added; returns its coded bytes.
  std::int64_t end_episode();

  /// Completes the file.
  void close();

 private:
  void keep(std::optional<CodedPicture> picture);
  void open_file(const std::vector<std::uint8_t>& parameter_sets);
  void write_picture(const CodedPicture& picture, std::int64_t end_pts);
  void check_write(int code);

  std::string path_;
  EncoderSettings settings_;
  AVRational time_base_;
  Container container_;
  std::vector<std::uint8_t> parameter_sets_;
  MuxerPtr muxer_;

  // The episode that is being encoded.
  EpisodePlan plan_;
  std::unique_ptr<PictureEncoder> encoder_;
  std::size_t frames_taken_ = 0;
  std::vector<CodedPicture> coded_;

  std::deque<std::int64_t> next_dts_;  // of the pictures to come, as far as it is known
  std::int64_t written_until_ = 0;     // end_pts of the last episode
};

}  // namespace sparsevideo
