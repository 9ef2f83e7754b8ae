// SPDX-License-Identifier: Apache-2.0
#include "container_hash.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

extern "C" {
#include <libavutil/mem.h>
#include <libavutil/murmur3.h>
}

namespace sparsevideo {

namespace {

constexpr std::uint64_t kMostContainerBytes = 4U << 20U;  // from either end
constexpr std::uint64_t kMostFileBytes = 64U << 10U;
constexpr std::size_t kReadBytes = 64U << 10U;

struct Range {
  std::uint64_t begin;
  std::uint64_t end;
};

struct FreeHash {
  void operator()(AVMurMur3* hash) const noexcept { av_free(hash); }
};

/// The bytes of the file that are in no packet, ascending.
std::vector<Range> ranges_between_packets(const StreamIndex& index, std::uint64_t size_bytes) {
  std::vector<Range> packets;
  if (index.packets_are_byte_ranges()) {
    for (const PacketRecord& packet : index.packets()) {
      if (packet.position >= 0) {
        const auto begin = static_cast<std::uint64_t>(packet.position);
        packets.push_back({begin, begin + packet.size_bytes});
      }
    }
    std::ranges::sort(packets, {}, &Range::begin);
  }
  std::vector<Range> between;
  std::uint64_t done = 0;
  for (const Range& packet : packets) {
    if (packet.begin > done) {
      between.push_back({done, std::min(packet.begin, size_bytes)});
    }
    done = std::max(done, packet.end);
  }
  if (done < size_bytes) {
    between.push_back({done, size_bytes});
  }
  return between;
}

/// What is left of the ranges without all bytes but the first and the last `most`.
std::vector<Range> ends_of(const std::vector<Range>& ranges, std::uint64_t most) {
  std::uint64_t total = 0;
  for (const Range& range : ranges) {
    total += range.end - range.begin;
  }
  if (total <= 2 * most) {
    return ranges;
  }
  std::vector<Range> ends;
  std::uint64_t before = 0;  // bytes of the ranges so far
  for (const Range& range : ranges) {
    const std::uint64_t size = range.end - range.begin;
    const std::uint64_t head = before < most ? std::min(size, most - before) : 0;
    const std::uint64_t after = total - before - size;
    const std::uint64_t tail = after < most ? std::min(size - head, most - after) : 0;
    if (head > 0) {
      ends.push_back({range.begin, range.begin + head});
    }
    if (tail > 0) {
      ends.push_back({range.end - tail, range.end});
    }
    before += size;
  }
  return ends;
}

}  // namespace

std::string container_hash(ByteSource& source, const StreamIndex& index) {
  const std::unique_ptr<AVMurMur3, FreeHash> hash(check_allocated(av_murmur3_alloc()));
  av_murmur3_init(hash.get());
  const auto ranges = ends_of(ranges_between_packets(index, source.size_bytes()),
                              index.packets_are_byte_ranges() ? kMostContainerBytes : kMostFileBytes);
  std::vector<std::uint8_t> buffer;
  for (const Range& range : ranges) {
    for (std::uint64_t begin = range.begin; begin < range.end; begin += kReadBytes) {
      buffer.resize(std::min<std::uint64_t>(kReadBytes, range.end - begin));
      const std::size_t count = source.read_at(begin, buffer);
      av_murmur3_update(hash.get(), buffer.data(), count);
    }
  }
  std::array<std::uint8_t, 16> bytes = {};
  av_murmur3_final(hash.get(), bytes.data());
  std::string digits;
  for (const std::uint8_t byte : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    digits += kDigits[byte >> 4U];
    digits += kDigits[byte & 15U];
  }
  return digits;
}

}  // namespace sparsevideo
