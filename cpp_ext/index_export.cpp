// SPDX-License-Identifier: Apache-2.0
// What a StreamIndex gives to an index file.
#include <ranges>
#include <utility>

#include "container_hash.h"
#include "index_contents.h"
#include "stream_index.h"

namespace sparsevideo {

IndexContents StreamIndex::contents(ByteSource& source) const {
  IndexContents contents;
  export_facts(contents);
  contents.shard_bytes = static_cast<std::int64_t>(source.size_bytes());
  contents.container_hash = container_hash(source, *this);
  contents.reference_offsets.push_back(0);
  contents.header_offsets.push_back(0);
  for (std::size_t i = 0; i < packets_.size(); ++i) {
    export_packet(i, contents);
  }
  for (std::size_t number = 0; number < frames_.size(); ++number) {
    const FrameRecord& frame = frames_[number];
    const auto row =
        static_cast<std::size_t>(pictures_[static_cast<std::size_t>(frame.picture)].first_packet);
    if (contents.frame[row] >= 0) {
      throw Error(ErrorKind::kIndex, "no index file can hold it: a coded picture is shown more than once");
    }
    contents.frame[row] = static_cast<std::int32_t>(number);
    contents.frame_pts[row] = frame.pts;
    contents.duration[row] = frame.duration;
    contents.width[row] = frame.width;
    contents.height[row] = frame.height;
  }
  return contents;
}

void StreamIndex::export_facts(IndexContents& contents) const {
  const AVCodecParameters& parameters = *parameters_;
  const char* pix_fmt = av_get_pix_fmt_name(static_cast<AVPixelFormat>(parameters.format));
  contents.codec = avcodec_get_name(parameters.codec_id);
  contents.pix_fmt = pix_fmt == nullptr ? "" : pix_fmt;
  contents.codec_tag = parameters.codec_tag;
  contents.bits_per_coded_sample = parameters.bits_per_coded_sample;
  contents.bits_per_raw_sample = parameters.bits_per_raw_sample;
  contents.profile = parameters.profile;
  contents.level = parameters.level;
  contents.coded_width = parameters.width;
  contents.coded_height = parameters.height;
  contents.field_order = parameters.field_order;
  contents.color_range = parameters.color_range;
  contents.color_primaries = parameters.color_primaries;
  contents.color_trc = parameters.color_trc;
  contents.color_space = parameters.color_space;
  contents.chroma_location = parameters.chroma_location;
  contents.video_delay = parameters.video_delay;
  contents.time_base_num = time_base_.num;
  contents.time_base_den = time_base_.den;
  contents.average_fps_num = average_fps_.num;
  contents.average_fps_den = average_fps_.den;
  contents.rotation_degrees = rotation_degrees_;
  contents.extradata.assign(parameters.extradata, parameters.extradata + parameters.extradata_size);
  contents.reorder_depth = reorder_depth_;
  contents.first_reorder_depth = first_reorder_depth_;
  contents.x264_build = x264_build_;
  contents.first_picture = first_picture_;
  contents.codec_has_graph = codec_has_graph_ ? 1 : 0;
  contents.frames_name_packets = frames_name_packets_ ? 1 : 0;
  contents.packets_are_byte_ranges = packets_are_byte_ranges_ ? 1 : 0;
  contents.fallback_reason = fallback_reason_;
  contents.parameter_sets = parameter_sets_;
  contents.extradata_changes = extradata_changes_;
}

void StreamIndex::export_packet(std::size_t number, IndexContents& contents) const {
  const PacketRecord& packet = packets_[number];
  const PictureRecord& picture = pictures_[static_cast<std::size_t>(packet.picture)];
  const bool is_second = std::cmp_not_equal(picture.first_packet, number);
  contents.pts.push_back(packet.pts);
  contents.dts.push_back(packet.dts);
  contents.position.push_back(packet.position);
  contents.size.push_back(packet.size_bytes);
  contents.checksum.push_back(packet.checksum);
  contents.flags.push_back(is_second ? kSecondField : traits_[static_cast<std::size_t>(packet.picture)]);
  contents.lists_hash.push_back(is_second ? 0 : picture.lists_hash);
  contents.reach.push_back(is_second ? 0 : packet.picture - graph_.earliest(packet.picture));
  contents.frame.push_back(-1);
  contents.frame_pts.push_back(0);
  contents.duration.push_back(0);
  contents.width.push_back(0);
  contents.height.push_back(0);
  if (!is_second) {
    for (const std::int32_t reference : graph_.references(packet.picture) | std::views::reverse) {
      contents.references.push_back(packet.picture - reference);
    }
  }
  contents.reference_offsets.push_back(static_cast<std::int64_t>(contents.references.size()));
  // A picture that may be left out without a trace is decoded in full, if it is more than a header, or not
  // at all.
  const std::uint8_t traits = traits_[static_cast<std::size_t>(packet.picture)];
  if ((traits & (PictureTraits::kDisposable | PictureTraits::kShowsExisting)) != PictureTraits::kDisposable) {
    const auto headers = state_bytes(packet);
    contents.headers.insert(contents.headers.end(), headers.begin(), headers.end());
  }
  contents.header_offsets.push_back(static_cast<std::int64_t>(contents.headers.size()));
}

}  // namespace sparsevideo
