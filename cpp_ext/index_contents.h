// SPDX-License-Identifier: Apache-2.0
// What an index file keeps of a StreamIndex: numbers, text and bytes, without any FFmpeg.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sparsevideo {

/// Raised whenever a pass finds or hashes something else than before, or a name below changes.
constexpr int kIndexVersion = 2;

/// The flag of a packet that completes the picture of the packet before.
constexpr std::uint16_t kSecondField = 1U << 8U;

/// Bytes that the decoder must have seen before it starts at a later picture.
struct StateEvent {
  std::int32_t picture;
  std::vector<std::uint8_t> bytes;
  bool operator==(const StateEvent&) const = default;
};

struct IndexContents {
  // The shard that it was made of.
  std::int64_t shard_bytes = 0;
  std::string container_hash;  // see container_hash.h

  // What the container says of the stream; the numbers are FFmpeg's.
  std::string codec;
  std::string pix_fmt;  // empty: it does not say
  std::int64_t codec_tag = 0;
  std::int64_t bits_per_coded_sample = 0;
  std::int64_t bits_per_raw_sample = 0;
  std::int64_t profile = 0;
  std::int64_t level = 0;
  std::int64_t coded_width = 0;
  std::int64_t coded_height = 0;
  std::int64_t field_order = 0;
  std::int64_t color_range = 0;
  std::int64_t color_primaries = 0;
  std::int64_t color_trc = 0;
  std::int64_t color_space = 0;
  std::int64_t chroma_location = 0;
  std::int64_t video_delay = 0;
  std::int64_t time_base_num = 0;
  std::int64_t time_base_den = 0;
  std::int64_t average_fps_num = 0;
  std::int64_t average_fps_den = 0;
  std::int64_t rotation_degrees = 0;
  std::vector<std::uint8_t> extradata;

  // What the pass found out, as in StreamIndex.
  std::int64_t reorder_depth = 0;
  std::int64_t first_reorder_depth = -1;
  std::int64_t x264_build = -1;
  std::int64_t first_picture = 0;
  std::int64_t codec_has_graph = 0;          // 0 or 1
  std::int64_t frames_name_packets = 0;      // 0 or 1
  std::int64_t packets_are_byte_ranges = 0;  // 0 or 1
  std::string fallback_reason;
  std::vector<StateEvent> parameter_sets;
  std::vector<StateEvent> extradata_changes;

  // One entry a packet, in decode order: a coded picture, or a field of one.
  std::vector<std::int64_t> pts;
  std::vector<std::int64_t> dts;
  std::vector<std::int64_t> position;  // of its first byte in the shard, or -1
  std::vector<std::uint32_t> size;
  std::vector<std::uint32_t> checksum;
  std::vector<std::uint16_t> flags;  // PictureTraits; or kSecondField, and it says nothing below but headers
  std::vector<std::uint32_t> lists_hash;
  std::vector<std::int32_t> reach;  // how many pictures back the first one is that it refers to or retains
  std::vector<std::int32_t> frame;  // its number in presentation order; -1: it is never shown
  std::vector<std::int64_t> frame_pts;
  std::vector<std::int64_t> duration;
  std::vector<std::int32_t> width;
  std::vector<std::int32_t> height;

  // Lists, one a packet: entry i is [offsets[i], offsets[i + 1]) of the values.
  std::vector<std::int64_t> reference_offsets;
  std::vector<std::int32_t> references;  // how many pictures back, ascending
  std::vector<std::int64_t> header_offsets;
  std::vector<std::uint8_t> headers;  // of pictures that may be sent without their samples
};

/// Calls visit(name, member) for everything that holds once for the stream.
template <typename Contents, typename Visit>
void visit_facts(Contents& contents, Visit visit) {
  visit("shard_bytes", contents.shard_bytes);
  visit("container_hash", contents.container_hash);
  visit("codec", contents.codec);
  visit("pix_fmt", contents.pix_fmt);
  visit("codec_tag", contents.codec_tag);
  visit("bits_per_coded_sample", contents.bits_per_coded_sample);
  visit("bits_per_raw_sample", contents.bits_per_raw_sample);
  visit("profile", contents.profile);
  visit("level", contents.level);
  visit("coded_width", contents.coded_width);
  visit("coded_height", contents.coded_height);
  visit("field_order", contents.field_order);
  visit("color_range", contents.color_range);
  visit("color_primaries", contents.color_primaries);
  visit("color_trc", contents.color_trc);
  visit("color_space", contents.color_space);
  visit("chroma_location", contents.chroma_location);
  visit("video_delay", contents.video_delay);
  visit("time_base_num", contents.time_base_num);
  visit("time_base_den", contents.time_base_den);
  visit("average_fps_num", contents.average_fps_num);
  visit("average_fps_den", contents.average_fps_den);
  visit("rotation_degrees", contents.rotation_degrees);
  visit("extradata", contents.extradata);
  visit("reorder_depth", contents.reorder_depth);
  visit("first_reorder_depth", contents.first_reorder_depth);
  visit("x264_build", contents.x264_build);
  visit("first_picture", contents.first_picture);
  visit("codec_has_graph", contents.codec_has_graph);
  visit("frames_name_packets", contents.frames_name_packets);
  visit("packets_are_byte_ranges", contents.packets_are_byte_ranges);
  visit("fallback_reason", contents.fallback_reason);
  visit("parameter_sets", contents.parameter_sets);
  visit("extradata_changes", contents.extradata_changes);
}

/// Calls visit(name, member) for every column.
template <typename Contents, typename Visit>
void visit_columns(Contents& contents, Visit visit) {
  visit("pts", contents.pts);
  visit("dts", contents.dts);
  visit("position", contents.position);
  visit("size", contents.size);
  visit("checksum", contents.checksum);
  visit("flags", contents.flags);
  visit("lists_hash", contents.lists_hash);
  visit("reach", contents.reach);
  visit("frame", contents.frame);
  visit("frame_pts", contents.frame_pts);
  visit("duration", contents.duration);
  visit("width", contents.width);
  visit("height", contents.height);
  visit("reference_offsets", contents.reference_offsets);
  visit("references", contents.references);
  visit("header_offsets", contents.header_offsets);
  visit("headers", contents.headers);
}

}  // namespace sparsevideo
