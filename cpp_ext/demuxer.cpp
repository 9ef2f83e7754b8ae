// SPDX-License-Identifier: Apache-2.0
#include "demuxer.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

extern "C" {
#include <libavutil/display.h>
}

#include "log_capture.h"

namespace sparsevideo {

namespace {

constexpr int kIoBufferBytes = 64 * 1024;

AVStream* choose_video_stream(AVFormatContext& format) {
  const auto is_cover = [](const AVStream* stream) {
    return (stream->disposition & AV_DISPOSITION_ATTACHED_PIC) != 0;
  };
  const int best = av_find_best_stream(&format, AVMEDIA_TYPE_VIDEO, -1, -1, nullptr, 0);
  if (best >= 0 && !is_cover(format.streams[best])) {
    return format.streams[best];
  }
  for (unsigned i = 0; i < format.nb_streams; ++i) {
    AVStream* stream = format.streams[i];
    if (stream->codecpar->codec_type == AVMEDIA_TYPE_VIDEO && !is_cover(stream)) {
      return stream;
    }
  }
  throw Error(ErrorKind::kFormat, "there is no video stream in it");
}

}  // namespace

Demuxer::Demuxer(ByteSource& source, bool split_units) : source_(source) {
  capture_log();
  auto* buffer = static_cast<std::uint8_t*>(check_allocated(av_malloc(kIoBufferBytes)));
  io_.reset(check_allocated(avio_alloc_context(buffer, kIoBufferBytes, 0, this, read_packet, nullptr, seek)));
  AVFormatContext* format = check_allocated(avformat_alloc_context());
  format->pb = io_.get();
  const int opened = avformat_open_input(&format, nullptr, nullptr, nullptr);  // frees on failure
  rethrow_read_error();
  check(opened, "cannot open it as a video (mp4, mov, mkv, webm, ts, avi, ivf, H.264, HEVC, AV1)",
        ErrorKind::kFormat);
  format_.reset(format);
  for (unsigned i = 0; i < format->nb_streams; ++i) {
    if (format->streams[i]->codecpar->codec_type != AVMEDIA_TYPE_VIDEO) {
      format->streams[i]->discard = AVDISCARD_ALL;
    } else if (format->streams[i]->codecpar->codec_id == AV_CODEC_ID_AV1 && packets_are_byte_ranges()) {
      format->flags |= AVFMT_FLAG_NOPARSE;  // MP4 says all that the parser would find, in every packet anew
    }
  }
  const int probed = avformat_find_stream_info(format, nullptr);
  rethrow_read_error();
  check(probed, "cannot find the streams", ErrorKind::kFormat);
  stream_ = choose_video_stream(*format);
  for (unsigned i = 0; i < format->nb_streams; ++i) {
    format->streams[i]->discard = format->streams[i] == stream_ ? AVDISCARD_DEFAULT : AVDISCARD_ALL;
  }
  if (split_units && stream_->codecpar->codec_id == AV_CODEC_ID_AV1) {
    AVBSFContext* splitter = nullptr;
    const AVBitStreamFilter* filter = av_bsf_get_by_name("av1_frame_split");
    check(av_bsf_alloc(filter, &splitter), "cannot split temporal units", ErrorKind::kFormat);
    splitter_.reset(splitter);
    check(avcodec_parameters_copy(splitter->par_in, stream_->codecpar), "cannot copy the codec's parameters",
          ErrorKind::kFormat);
    check(av_bsf_init(splitter), "cannot split temporal units", ErrorKind::kFormat);
  }
}

bool Demuxer::read(AVPacket& packet) {
  if (!splitter_) {
    return read_from_container(packet);
  }
  while (true) {
    av_packet_unref(&packet);
    const int result = av_bsf_receive_packet(splitter_.get(), &packet);
    if (result == AVERROR_EOF) {
      return false;
    }
    if (result != AVERROR(EAGAIN)) {
      check(result, "cannot split a temporal unit", ErrorKind::kFormat);
      packet.pos += packet.pos < 0 ? 0 : packet.data - unit_bytes_;
      return true;
    }
    const bool is_end = !read_from_container(packet);
    if (!is_end && packet.size == 0) {
      return true;  // the filter would take it for the end
    }
    unit_bytes_ = packet.data;
    check(av_bsf_send_packet(splitter_.get(), is_end ? nullptr : &packet), "cannot split a temporal unit",
          ErrorKind::kFormat);
  }
}

bool Demuxer::read_from_container(AVPacket& packet) {
  while (true) {
    av_packet_unref(&packet);
    const int result = av_read_frame(format_.get(), &packet);
    rethrow_read_error();
    if (result < 0) {
      return false;  // as other readers do: what cannot be demuxed any more is the end
    }
    if (packet.stream_index == stream_->index) {
      return true;
    }
  }
}

AVRational Demuxer::average_fps() const {
  if (stream_->avg_frame_rate.num > 0 && stream_->avg_frame_rate.den > 0) {
    return stream_->avg_frame_rate;
  }
  return av_guess_frame_rate(format_.get(), stream_, nullptr);
}

int Demuxer::rotation_degrees() const {
  const AVPacketSideData* matrix = av_packet_side_data_get(
      stream_->codecpar->coded_side_data, stream_->codecpar->nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
  if (matrix == nullptr || matrix->size < 9 * sizeof(std::int32_t)) {
    return 0;
  }
  std::array<std::int32_t, 9> elements = {};
  std::memcpy(elements.data(), matrix->data, sizeof elements);
  const double counterclockwise = av_display_rotation_get(elements.data());
  if (std::isnan(counterclockwise)) {
    return 0;
  }
  const int quarter_turns = static_cast<int>(std::lround(-counterclockwise / 90.0));
  return ((quarter_turns % 4) + 4) % 4 * 90;
}

bool Demuxer::packets_are_byte_ranges() const {
  return std::string_view(format_->iformat->name).find("mp4") != std::string_view::npos;
}

int Demuxer::read_packet(void* opaque, std::uint8_t* buffer, int size) {
  auto& self = *static_cast<Demuxer*>(opaque);
  try {
    const std::size_t count = self.source_.read_at(self.position_, {buffer, static_cast<std::size_t>(size)});
    self.position_ += count;
    return count == 0 ? AVERROR_EOF : static_cast<int>(count);
  } catch (...) {  // an exception must not cross C
    self.read_error_ = std::current_exception();
    return AVERROR(EIO);
  }
}

std::int64_t Demuxer::seek(void* opaque, std::int64_t offset, int whence) {
  auto& self = *static_cast<Demuxer*>(opaque);
  const auto size = static_cast<std::int64_t>(self.source_.size_bytes());
  if ((whence & AVSEEK_SIZE) != 0) {
    return size;
  }
  switch (whence & ~AVSEEK_FORCE) {
    case SEEK_SET:
      break;
    case SEEK_CUR:
      offset += static_cast<std::int64_t>(self.position_);
      break;
    case SEEK_END:
      offset += size;
      break;
    default:
      return AVERROR(EINVAL);
  }
  if (offset < 0) {
    return AVERROR(EINVAL);
  }
  self.position_ = static_cast<std::uint64_t>(offset);
  return offset;
}

void Demuxer::rethrow_read_error() {
  if (read_error_) {
    std::rethrow_exception(std::exchange(read_error_, nullptr));
  }
}

}  // namespace sparsevideo
