// SPDX-License-Identifier: GPL-2.0-or-later
#include "encoder/shard_writer.h"

extern "C" {
#include <libavutil/display.h>
}

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace sparsevideo {
namespace {

void require(bool holds, const std::string& text) {
  if (!holds) {
    throw std::invalid_argument(text);
  }
}

void check_plan(const EpisodePlan& plan, bool reference_b, std::int64_t written_until) {
  require(plan.pts.size() == plan.types.size(),
          std::to_string(plan.types.size()) + " types for " + std::to_string(plan.pts.size()) + " frames");
  check_types(plan.types, reference_b);
  require(plan.pts.front() >= written_until, "the episode starts at pts " + std::to_string(plan.pts.front()) +
                                                 ", before the end of what is written, " +
                                                 std::to_string(written_until));
  require(std::ranges::adjacent_find(plan.pts, std::greater_equal{}) == plan.pts.end(), "pts must rise");
  require(plan.end_pts > plan.pts.back(), "end_pts must lie after the last frame's pts");
}

void set_parameters(AVCodecParameters& parameters, const EncoderSettings& settings,
                    const std::vector<std::uint8_t>& parameter_sets) {
  parameters.codec_type = AVMEDIA_TYPE_VIDEO;
  parameters.codec_id = settings.codec;
  // Every parameter set is in the header, which is what avc1 and hvc1 say; browsers want hvc1.
  parameters.codec_tag =
      settings.codec == AV_CODEC_ID_HEVC ? MKTAG('h', 'v', 'c', '1') : MKTAG('a', 'v', 'c', '1');
  parameters.format = settings.bit_depth > 8 ? AV_PIX_FMT_YUV420P10 : AV_PIX_FMT_YUV420P;
  parameters.width = settings.width;
  parameters.height = settings.height;
  parameters.sample_aspect_ratio = settings.sample_aspect_ratio;
  parameters.color_primaries = settings.color_primaries;
  parameters.color_trc = settings.color_trc;
  parameters.color_space = settings.color_space;
  parameters.color_range = settings.color_range;
  parameters.chroma_location = settings.chroma_location;
  parameters.video_delay = settings.reference_b ? 2 : 1;
  const std::size_t size = parameter_sets.size();
  parameters.extradata = static_cast<std::uint8_t*>(av_mallocz(size + AV_INPUT_BUFFER_PADDING_SIZE));
  check_allocated(parameters.extradata);
  std::ranges::copy(parameter_sets, parameters.extradata);
  parameters.extradata_size = static_cast<int>(size);
}

void set_rotation(AVCodecParameters& parameters, int rotation) {
  AVPacketSideData* data =
      av_packet_side_data_new(&parameters.coded_side_data, &parameters.nb_coded_side_data,
                              AV_PKT_DATA_DISPLAYMATRIX, 9 * sizeof(std::int32_t), 0);
  check_allocated(data);
  // The matrix counts counter-clockwise, and is told the opposite.
  av_display_rotation_set(reinterpret_cast<std::int32_t*>(data->data), rotation);
}

}  // namespace

ShardWriter::ShardWriter(std::string path, EncoderSettings settings, AVRational time_base,
                         Container container)
    : path_(std::move(path)), settings_(std::move(settings)), time_base_(time_base), container_(container) {
  check_settings(settings_);
  require(time_base.num > 0 && time_base.den > 0, "time_base must be positive");
  require(container.rotation % 90 == 0,
          "rotation is " + std::to_string(container.rotation) + "; it must be a multiple of 90");
  av_log_set_level(AV_LOG_QUIET);  // what fails is told by its code
  parameter_sets_ = make_encoder(settings_, {})->parameter_sets();
}

ShardWriter::~ShardWriter() {
  if (muxer_ != nullptr) {
    muxer_.reset();
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
}

void ShardWriter::begin_episode(EpisodePlan plan) {
  encoder_.reset();
  check_plan(plan, settings_.reference_b, written_until_);
  plan_ = std::move(plan);
  frames_taken_ = 0;
  coded_.clear();
  auto encoder = make_encoder(settings_, plan_.types);
  if (encoder->parameter_sets() != parameter_sets_) {
    throw std::logic_error("the episode's parameter sets are not those of the shard");
  }
  encoder_ = std::move(encoder);
}

void ShardWriter::add_frame(const Planes& planes) {
  if (encoder_ == nullptr || frames_taken_ == plan_.pts.size()) {
    throw std::invalid_argument("more frames than pts");
  }
  keep(encoder_->encode(planes, plan_.types[frames_taken_++]));
}

void ShardWriter::keep(std::optional<CodedPicture> picture) {
  if (!picture) {
    return;
  }
  // Encoders change types silently, and only the types make the closures short.
  const auto frame = static_cast<std::size_t>(picture->frame);
  if (frame >= plan_.types.size() || plan_.types[frame] != picture->type) {
    throw std::logic_error("the encoder changed the type of frame " + std::to_string(picture->frame));
  }
  coded_.push_back(std::move(*picture));
}

std::int64_t ShardWriter::end_episode() {
  if (encoder_ == nullptr || frames_taken_ != plan_.pts.size()) {
    throw std::invalid_argument(std::to_string(frames_taken_) + " frames for " +
                                std::to_string(plan_.pts.size()) + " pts");
  }
  while (auto picture = encoder_->flush()) {
    keep(std::move(picture));
  }
  encoder_.reset();
  if (coded_.size() != plan_.pts.size()) {
    throw std::logic_error("the encoder gave " + std::to_string(coded_.size()) + " pictures for " +
                           std::to_string(plan_.pts.size()) + " frames");
  }
  if (muxer_ == nullptr) {
    open_file(parameter_sets_);
    // Pictures are decoded earlier than shown by as many places as the order differs; the first by as many
    // steps.
    const std::int64_t step = (plan_.pts.size() > 1 ? plan_.pts[1] : plan_.end_pts) - plan_.pts[0];
    for (std::int64_t ahead = settings_.reference_b ? 2 : 1; ahead > 0; --ahead) {
      next_dts_.push_back(plan_.pts[0] - ahead * step);
    }
  }
  next_dts_.insert(next_dts_.end(), plan_.pts.begin(), plan_.pts.end());
  std::int64_t bytes = 0;
  for (const CodedPicture& picture : coded_) {
    const auto after = static_cast<std::size_t>(picture.frame) + 1;
    write_picture(picture, after < plan_.pts.size() ? plan_.pts[after] : plan_.end_pts);
    bytes += static_cast<std::int64_t>(picture.bytes.size());
  }
  written_until_ = plan_.end_pts;
  return bytes;
}

void ShardWriter::open_file(const std::vector<std::uint8_t>& parameter_sets) {
  AVFormatContext* context = nullptr;
  check_write(avformat_alloc_output_context2(&context, nullptr, "mp4", nullptr));
  MuxerPtr muxer(context);
  muxer->url = check_allocated(av_strdup(("file:" + path_).c_str()));
  AVStream* stream = check_allocated(avformat_new_stream(muxer.get(), nullptr));
  set_parameters(*stream->codecpar, settings_, parameter_sets);
  if (container_.rotation != 0) {
    set_rotation(*stream->codecpar, container_.rotation);
  }
  stream->sample_aspect_ratio = settings_.sample_aspect_ratio;
  stream->avg_frame_rate = settings_.average_fps;
  // The file counts in 1/den, edit lists too: every pts is kept as it is.
  stream->time_base = {1, time_base_.den};
  AVDictionary* options = nullptr;
  av_dict_set_int(&options, "video_track_timescale", time_base_.den, 0);
  av_dict_set_int(&options, "movie_timescale", time_base_.den, 0);
  // The header of a fragmented file waits for the first fragment, which tells where the display begins.
  const char* flags = container_.fragmented ? "+frag_keyframe+delay_moov+default_base_moof" : "+faststart";
  av_dict_set(&options, "movflags", flags, 0);
  check_write(avio_open(&muxer->pb, muxer->url, AVIO_FLAG_WRITE));
  muxer_ = std::move(muxer);
  const int code = avformat_write_header(muxer_.get(), &options);
  av_dict_free(&options);
  check_write(code);
}

void ShardWriter::write_picture(const CodedPicture& picture, std::int64_t end_pts) {
  const PacketPtr packet = make_packet();
  check_write(av_new_packet(packet.get(), static_cast<int>(picture.bytes.size())));
  std::ranges::copy(picture.bytes, packet->data);
  const std::int64_t pts = plan_.pts[static_cast<std::size_t>(picture.frame)];
  packet->pts = pts * time_base_.num;
  packet->dts = next_dts_.front() * time_base_.num;
  packet->duration = (end_pts - pts) * time_base_.num;
  // Readers that seek by these flags would miss the B pictures that an open GOP shows before its first
  // picture.
  packet->flags = picture.type == PictureType::kIdr ? AV_PKT_FLAG_KEY : 0;
  next_dts_.pop_front();
  check_write(av_write_frame(muxer_.get(), packet.get()));
}

void ShardWriter::close() {
  if (muxer_ == nullptr) {
    throw std::invalid_argument(path_ + ": no episode was written");
  }
  check_write(av_write_trailer(muxer_.get()));
  check_write(avio_closep(&muxer_->pb));
  muxer_.reset();
}

void ShardWriter::check_write(int code) {
  if (code >= 0 && muxer_ != nullptr && muxer_->pb != nullptr) {
    code = muxer_->pb->error;
  }
  check(code, "writing " + path_, ErrorKind::kWrite);
}

}  // namespace sparsevideo
