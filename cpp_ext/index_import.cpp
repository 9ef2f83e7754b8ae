// SPDX-License-Identifier: Apache-2.0
#include "index_import.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "container_hash.h"
#include "picture_decoder.h"

namespace sparsevideo {

namespace {

constexpr std::int64_t kMostPacketBytes = 1 << 30;
constexpr std::int64_t kMostStateBytes = 1 << 28;  // of parameter sets, in front of one packet
constexpr std::int64_t kLargestSide = 1 << 16;
constexpr std::int64_t kMostReorderedFrames = 16;  // H.264 and HEVC allow no more
constexpr std::int64_t kLargestInt = std::numeric_limits<int>::max();
constexpr std::int64_t kLargestTime = std::int64_t{1} << 60;  // so that sums of times cannot overflow

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorKind::kIndex, "its numbers do not agree: " + what);
}

void require(bool holds, const char* what) {
  if (!holds) {
    refuse(what);
  }
}

std::int64_t in_range(const char* name, std::int64_t value, std::int64_t lowest, std::int64_t highest) {
  if (value < lowest || value > highest) {
    refuse(std::string(name) + " is " + std::to_string(value) + ", outside [" + std::to_string(lowest) +
           ", " + std::to_string(highest) + "]");
  }
  return value;
}

int int_in_range(const char* name, std::int64_t value, std::int64_t lowest, std::int64_t highest) {
  return static_cast<int>(in_range(name, value, lowest, highest));
}

template <typename Enum>
Enum enum_below(const char* name, std::int64_t value, Enum end) {
  return static_cast<Enum>(in_range(name, value, 0, static_cast<std::int64_t>(end) - 1));
}

}  // namespace

StreamIndex::StreamIndex(const IndexContents& contents, ByteSource& source) {
  if (std::cmp_not_equal(contents.shard_bytes, source.size_bytes())) {
    throw Error(ErrorKind::kIndex, "it was made of another file: of " + std::to_string(contents.shard_bytes) +
                                       " bytes, not " + std::to_string(source.size_bytes()));
  }
  Import(*this, contents, source.size_bytes()).run();
  if (container_hash(source, *this) != contents.container_hash) {
    throw Error(ErrorKind::kIndex, "it was made of another file, of the same size");
  }
  planner_ = std::make_unique<Planner>(graph_, traits_, picture_pts_, codec_has_graph_);
}

StreamIndex::Import::Import(StreamIndex& index, const IndexContents& contents, std::uint64_t shard_bytes)
    : index_(index), contents_(contents), shard_bytes_(shard_bytes) {}

void StreamIndex::Import::run() {
  take_parameters();
  take_packets();
  take_frames();
  take_facts();
}

void StreamIndex::Import::take_parameters() {
  const AVCodecDescriptor* codec = avcodec_descriptor_get_by_name(contents_.codec.c_str());
  require(codec != nullptr && codec->type == AVMEDIA_TYPE_VIDEO, "there is no such codec");
  const AVPixelFormat pix_fmt =
      contents_.pix_fmt.empty() ? AV_PIX_FMT_NONE : av_get_pix_fmt(contents_.pix_fmt.c_str());
  require(contents_.pix_fmt.empty() || pix_fmt != AV_PIX_FMT_NONE, "there is no such pixel format");
  index_.parameters_.reset(check_allocated(avcodec_parameters_alloc()));
  AVCodecParameters& parameters = *index_.parameters_;
  parameters.codec_type = AVMEDIA_TYPE_VIDEO;
  parameters.codec_id = codec->id;
  parameters.format = pix_fmt;
  parameters.codec_tag = static_cast<std::uint32_t>(
      in_range("codec_tag", contents_.codec_tag, 0, std::numeric_limits<std::uint32_t>::max()));
  parameters.bits_per_coded_sample =
      int_in_range("bits_per_coded_sample", contents_.bits_per_coded_sample, 0, 1024);
  parameters.bits_per_raw_sample = int_in_range("bits_per_raw_sample", contents_.bits_per_raw_sample, 0, 64);
  parameters.profile = int_in_range("profile", contents_.profile, -kLargestInt, kLargestInt);
  parameters.level = int_in_range("level", contents_.level, -kLargestInt, kLargestInt);
  parameters.width = int_in_range("coded_width", contents_.coded_width, 0, kLargestSide);
  parameters.height = int_in_range("coded_height", contents_.coded_height, 0, kLargestSide);
  parameters.field_order =
      static_cast<AVFieldOrder>(in_range("field_order", contents_.field_order, 0, AV_FIELD_BT));
  parameters.color_range = enum_below("color_range", contents_.color_range, AVCOL_RANGE_NB);
  parameters.color_primaries = enum_below("color_primaries", contents_.color_primaries, AVCOL_PRI_NB);
  parameters.color_trc = enum_below("color_trc", contents_.color_trc, AVCOL_TRC_NB);
  parameters.color_space = enum_below("color_space", contents_.color_space, AVCOL_SPC_NB);
  parameters.chroma_location = enum_below("chroma_location", contents_.chroma_location, AVCHROMA_LOC_NB);
  parameters.video_delay = int_in_range("video_delay", contents_.video_delay, 0, kMostReorderedFrames);
  const auto& extradata = contents_.extradata;
  if (!extradata.empty()) {
    require(std::ssize(extradata) <= kMostStateBytes, "there is too much extradata");
    parameters.extradata = static_cast<std::uint8_t*>(
        check_allocated(av_mallocz(extradata.size() + AV_INPUT_BUFFER_PADDING_SIZE)));
    parameters.extradata_size = static_cast<int>(extradata.size());
    std::ranges::copy(extradata, parameters.extradata);
  }
  index_.codec_has_graph_ = in_range("codec_has_graph", contents_.codec_has_graph, 0, 1) == 1;
  require(!index_.codec_has_graph_ || reports_references(codec->id), "the codec has no reference graph");
}

void StreamIndex::Import::take_facts() {
  index_.time_base_ = {int_in_range("time_base_num", contents_.time_base_num, 1, kLargestInt),
                       int_in_range("time_base_den", contents_.time_base_den, 1, kLargestInt)};
  index_.average_fps_ = {int_in_range("average_fps_num", contents_.average_fps_num, 0, kLargestInt),
                         int_in_range("average_fps_den", contents_.average_fps_den, 0, kLargestInt)};
  index_.rotation_degrees_ = int_in_range("rotation_degrees", contents_.rotation_degrees, 0, 270);
  require(index_.rotation_degrees_ % 90 == 0, "rotation_degrees is no multiple of 90");
  index_.reorder_depth_ = int_in_range("reorder_depth", contents_.reorder_depth, 0, kMostReorderedFrames);
  index_.first_reorder_depth_ =
      int_in_range("first_reorder_depth", contents_.first_reorder_depth, -1, kMostReorderedFrames);
  index_.x264_build_ = int_in_range("x264_build", contents_.x264_build, -1, kLargestInt);
  index_.frames_name_packets_ = in_range("frames_name_packets", contents_.frames_name_packets, 0, 1) == 1;
  index_.fallback_reason_ = contents_.fallback_reason;
  require(index_.codec_has_graph_ || !index_.fallback_reason_.empty(),
          "nothing says why there is no reference graph");
  index_.parameter_sets_ = checked_events("parameter_sets", contents_.parameter_sets);
  index_.extradata_changes_ = checked_events("extradata_changes", contents_.extradata_changes);
  // No frame is decoded from before its first picture.
  const auto first_shown = std::ranges::min(index_.frames_, {}, &FrameRecord::picture).picture;
  index_.first_picture_ = int_in_range("first_picture", contents_.first_picture, 0, first_shown);
}

std::vector<StateEvent> StreamIndex::Import::checked_events(const char* name,
                                                            const std::vector<StateEvent>& events) const {
  std::int64_t bytes = 0;
  std::int32_t earliest = 0;
  for (const StateEvent& event : events) {
    earliest = int_in_range(name, event.picture, earliest, std::ssize(index_.pictures_) - 1);
    bytes += std::ssize(event.bytes);
  }
  in_range(name, bytes, 0, kMostStateBytes);
  return events;
}

template <typename T>
void StreamIndex::Import::check_lists(const char* name, const std::vector<std::int64_t>& offsets,
                                      const std::vector<T>& values) const {
  in_range(name, std::ssize(offsets), std::ssize(contents_.pts) + 1, std::ssize(contents_.pts) + 1);
  in_range(name, offsets.front(), 0, 0);
  std::int64_t before = 0;
  for (const std::int64_t offset : offsets) {
    before = in_range(name, offset, before, std::ssize(values));
  }
  in_range(name, offsets.back(), std::ssize(values), std::ssize(values));
}

void StreamIndex::Import::take_packets() {
  const std::size_t count = contents_.pts.size();
  in_range("the number of pictures", static_cast<std::int64_t>(count), 1, kLargestInt - 1);
  check_lists("references", contents_.reference_offsets, contents_.references);
  check_lists("headers", contents_.header_offsets, contents_.headers);
  visit_columns(contents_, [count](const char* name, const auto& column) {
    const std::string_view label(name);
    const bool is_list = label.starts_with("reference") || label.starts_with("header");
    require(is_list || column.size() == count, "columns have different lengths");
  });
  index_.packets_are_byte_ranges_ =
      in_range("packets_are_byte_ranges", contents_.packets_are_byte_ranges, 0, 1) == 1;
  index_.state_bytes_ = contents_.headers;
  index_.packets_.reserve(count);
  for (std::size_t row = 0; row < count; ++row) {
    if (contents_.flags[row] != kSecondField) {
      take_picture(row);
    } else {
      require(!index_.pictures_.empty() && index_.pictures_.back().packet_count == 1,
              "a second field has no first one");
      ++index_.pictures_.back().packet_count;
    }
    take_packet(row);
  }
}

void StreamIndex::Import::take_packet(std::size_t row) {
  const std::int64_t size = in_range("size", contents_.size[row], 0, kMostPacketBytes);
  const auto shard_bytes = static_cast<std::int64_t>(shard_bytes_);
  std::int64_t last = shard_bytes;
  if (index_.packets_are_byte_ranges_) {
    last = shard_bytes - size;
    require(last >= 0, "a packet is larger than the file");
  }
  const auto state_begin = static_cast<std::uint64_t>(contents_.header_offsets[row]);
  const auto state_end = static_cast<std::uint64_t>(contents_.header_offsets[row + 1]);
  const auto state_size = in_range("the size of headers", static_cast<std::int64_t>(state_end - state_begin),
                                   0, kMostPacketBytes);
  index_.packets_.push_back({.pts = contents_.pts[row],
                             .dts = contents_.dts[row],
                             .position = in_range("position", contents_.position[row], -1, last),
                             .size_bytes = static_cast<std::uint32_t>(size),
                             .checksum = contents_.checksum[row],
                             .picture = static_cast<std::int32_t>(index_.pictures_.size()) - 1,
                             .state_begin = state_begin,
                             .state_size = static_cast<std::uint32_t>(state_size)});
}

void StreamIndex::Import::take_picture(std::size_t row) {
  const auto picture = static_cast<std::int32_t>(index_.pictures_.size());
  std::vector<std::int32_t> references;
  const auto end = static_cast<std::size_t>(contents_.reference_offsets[row + 1]);
  for (auto i = static_cast<std::size_t>(contents_.reference_offsets[row]); i < end; ++i) {
    references.push_back(picture - int_in_range("references", contents_.references[i], 1, picture));
  }
  const std::int32_t reach = int_in_range("reach", contents_.reach[row], 0, picture);
  const std::int32_t earliest = picture - reach;
  index_.graph_.add_picture(references,
                            reach == 0 ? std::span<const std::int32_t>() : std::span(&earliest, 1));
  require(index_.graph_.earliest(picture) == earliest, "a picture refers to one out of its reach");
  index_.pictures_.push_back({static_cast<std::int32_t>(row), 1, contents_.lists_hash[row]});
  index_.traits_.push_back(static_cast<std::uint8_t>(in_range("flags", contents_.flags[row], 0, 255)));
  index_.picture_pts_.push_back(contents_.pts[row]);
}

void StreamIndex::Import::take_frames() {
  const auto count = std::ranges::count_if(contents_.frame, [](std::int32_t frame) { return frame >= 0; });
  require(count > 0, "there are no frames");
  index_.frames_.assign(static_cast<std::size_t>(count), {0, 0, -1, 0, 0});
  for (std::size_t row = 0; row < contents_.frame.size(); ++row) {
    const std::int64_t number = in_range("frame", contents_.frame[row], -1, count - 1);
    if (number < 0) {
      continue;
    }
    FrameRecord& frame = index_.frames_[static_cast<std::size_t>(number)];
    require(frame.picture < 0, "two pictures are the same frame");
    require(contents_.flags[row] != kSecondField, "a second field is shown on its own");
    frame = {.pts = in_range("frame_pts", contents_.frame_pts[row], -kLargestTime, kLargestTime),
             .duration = in_range("duration", contents_.duration[row], 1, kLargestTime),
             .picture = index_.packets_[row].picture,
             .width = int_in_range("width", contents_.width[row], 1, kLargestSide),
             .height = int_in_range("height", contents_.height[row], 1, kLargestSide)};
  }
}

}  // namespace sparsevideo
