// SPDX-License-Identifier: Apache-2.0
#include "stream_index.h"

#include <algorithm>
#include <memory>
#include <ranges>
#include <string>

extern "C" {
#include <libavutil/adler32.h>
}

#include "index_pass.h"

namespace sparsevideo {

namespace {

constexpr std::uint64_t kHashStart = 0xcbf29ce484222325U;  // FNV-1a, 64 bits
constexpr std::uint64_t kHashPrime = 0x100000001b3U;

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) { return (hash ^ value) * kHashPrime; }

}  // namespace

std::span<const AVCodedReference> references_of(const AVCodedUnit& unit) {
  return std::span(unit.references).first(static_cast<std::size_t>(unit.nb_references));
}

std::uint32_t checksum(std::span<const std::uint8_t> bytes) {
  return av_adler32_update(1, bytes.data(), bytes.size());
}

std::int32_t packet_of(const AVFrame& frame) {
  return static_cast<std::int32_t>(reinterpret_cast<std::intptr_t>(frame.opaque)) - 1;
}

void name_packet(AVPacket& packet, std::int32_t number) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): FFmpeg hands the pointer on and never follows it
  packet.opaque = reinterpret_cast<void*>(static_cast<std::intptr_t>(number) + 1);
}

std::uint64_t hash_references(std::uint64_t hash, const AVCodedUnit& unit, std::int32_t picture,
                              std::span<const PacketRecord> packets) {
  hash = mix(hash == 0 ? kHashStart : hash, static_cast<std::uint64_t>(unit.structure));
  for (const AVCodedReference& reference : references_of(unit)) {
    if (reference.list < 0) {
      continue;
    }
    const std::int32_t packet = packet_of(*reference.frame);
    const std::int32_t other = packet >= 0 && static_cast<std::size_t>(packet) < packets.size()
                                   ? packets[static_cast<std::size_t>(packet)].picture
                                   : -1;
    hash = mix(hash, static_cast<std::uint64_t>(reference.list) |
                         static_cast<std::uint64_t>(reference.structure) << 1U |
                         static_cast<std::uint64_t>(reference.flags) << 3U);
    hash = mix(hash, static_cast<std::uint32_t>(picture - other));
    hash = mix(hash, static_cast<std::uint32_t>(reference.poc_distance));
  }
  return hash;
}

std::uint32_t folded(std::uint64_t hash) { return static_cast<std::uint32_t>(hash ^ hash >> 32U); }

bool has_missing_reference(const AVCodedUnit& unit) {
  return std::ranges::any_of(references_of(unit), [](const AVCodedReference& reference) {
    return reference.list >= 0 && (reference.flags & AV_CODED_REFERENCE_MISSING) != 0;
  });
}

StreamIndex::StreamIndex(ByteSource& source) {
  Pass first_pass(*this, source);
  first_pass.run();
  if (first_pass.learnt_reorder_depth()) {
    const int reorder_depth = reorder_depth_;
    *this = StreamIndex();
    reorder_depth_ = first_reorder_depth_ = reorder_depth;
    Pass(*this, source).run();
  } else if (first_pass.found_layers()) {
    *this = StreamIndex();
    fallback_reason_ = "it has several layers or operating points";
    Pass(*this, source).run();
  }
  planner_ = std::make_unique<Planner>(graph_, traits_, picture_pts_, codec_has_graph_);
}

std::vector<std::uint8_t> StreamIndex::parameter_sets_before(std::int32_t picture) const {
  const auto end = std::ranges::lower_bound(parameter_sets_, picture, {}, &StateEvent::picture);
  std::vector<const std::vector<std::uint8_t>*> last_first;
  for (auto event = end; event != parameter_sets_.begin();) {
    --event;
    const auto is_same = [&](const auto* other) { return *other == event->bytes; };
    if (std::ranges::none_of(last_first, is_same)) {
      last_first.push_back(&event->bytes);
    }
  }
  std::vector<std::uint8_t> bytes;
  for (const auto* unit : last_first | std::views::reverse) {
    bytes.insert(bytes.end(), unit->begin(), unit->end());
  }
  return bytes;
}

std::span<const std::uint8_t> StreamIndex::extradata_at(std::int32_t picture) const {
  const auto after = std::ranges::upper_bound(extradata_changes_, picture, {}, &StateEvent::picture);
  if (after == extradata_changes_.begin()) {
    return {};
  }
  return std::prev(after)->bytes;
}

bool StreamIndex::changes_extradata_at(std::int32_t picture) const {
  return std::ranges::binary_search(extradata_changes_, picture, {}, &StateEvent::picture);
}

std::size_t StreamIndex::size_bytes() const {
  std::size_t bytes = sizeof *this + graph_.size_bytes() + state_bytes_.capacity();
  bytes += packets_.capacity() * sizeof(PacketRecord) + pictures_.capacity() * sizeof(PictureRecord);
  bytes += frames_.capacity() * sizeof(FrameRecord) + traits_.capacity();
  bytes += picture_pts_.capacity() * sizeof(std::int64_t);
  for (const auto& events : {std::span(parameter_sets_), std::span(extradata_changes_)}) {
    for (const StateEvent& event : events) {
      bytes += sizeof event + event.bytes.capacity();
    }
  }
  return bytes;
}

}  // namespace sparsevideo
