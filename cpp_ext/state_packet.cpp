// SPDX-License-Identifier: Apache-2.0
#include "state_packet.h"

#include <algorithm>
#include <array>
#include <ranges>
#include <utility>

namespace sparsevideo {

namespace {

constexpr std::array<std::uint8_t, 3> kStartCode = {0, 0, 1};
constexpr std::uint8_t kStopBit = 0x80;  // rbsp_trailing_bits: ends the header on a non-zero byte

/// How many bytes of the escaped NAL unit hold its first `payload_bytes` bytes: emulation prevention
/// (H.264 7.4.1.1, H.265 7.4.2.3) puts a 3 after two zeros.
std::size_t escaped_size(std::span<const std::uint8_t> unit, std::size_t payload_bytes) {
  std::size_t zeros = 0;
  std::size_t index = 0;
  for (; index < unit.size() && payload_bytes > 0; ++index) {
    if (zeros >= 2 && unit[index] == 3) {
      zeros = 0;
      continue;
    }
    zeros = unit[index] == 0 ? zeros + 1 : 0;
    --payload_bytes;
  }
  return index;
}

void append_big_endian(std::size_t value, std::size_t byte_count, std::vector<std::uint8_t>& out) {
  while (byte_count-- > 0) {
    out.push_back(static_cast<std::uint8_t>(value >> (8 * byte_count)));
  }
}

}  // namespace

StatePacketWriter::StatePacketWriter(const AVCodecParameters& parameters) : codec_(parameters.codec_id) {
  set_extradata({parameters.extradata, static_cast<std::size_t>(parameters.extradata_size)});
}

// ISO/IEC 14496-15: avcC says it in its fifth byte, hvcC in its 22nd; Annex B begins with a zero.
void StatePacketWriter::set_extradata(std::span<const std::uint8_t> extradata) {
  const std::size_t where = codec_ == AV_CODEC_ID_H264 ? 4 : 21;
  const bool sized = extradata.size() > where && extradata[0] == 1;
  length_bytes_ = sized ? (extradata[where] & 3U) + 1 : 0;
}

void StatePacketWriter::add_slice(const AVCodedUnit& unit, std::span<const std::uint8_t> packet) {
  if (codec_ == AV_CODEC_ID_AV1) {
    shows_existing_ = (unit.flags & AV_CODED_UNIT_SHOW_EXISTING) != 0;
    return;
  }
  const auto begin = static_cast<std::size_t>(unit.data - packet.data());
  const auto size = static_cast<std::size_t>(unit.size);
  if (unit.data < packet.data() || begin > packet.size() || size > packet.size() - begin) {
    slices_.push_back({0, 0, 0});  // not in this packet: prefix_bytes() will refuse it
    return;
  }
  slices_.push_back(
      {begin, size, escaped_size(packet.subspan(begin, size), static_cast<std::size_t>(unit.header_size))});
}

// 0 if the bytes before the slice are neither its size nor a start code.
std::size_t StatePacketWriter::prefix_bytes(std::span<const std::uint8_t> packet, const Slice& slice) const {
  const std::size_t bytes = length_bytes_ == 0 ? kStartCode.size() : length_bytes_;
  if (slice.begin < bytes || slice.size == 0) {
    return 0;
  }
  const auto prefix = packet.subspan(slice.begin - bytes, bytes);
  if (length_bytes_ == 0) {
    return std::ranges::equal(prefix, kStartCode) ? bytes : 0;
  }
  std::size_t size = 0;
  for (const std::uint8_t byte : prefix) {
    size = size << 8U | byte;
  }
  return size == slice.size ? bytes : 0;
}

void StatePacketWriter::write(std::span<const std::uint8_t> packet, std::vector<std::uint8_t>& out) {
  if (codec_ == AV_CODEC_ID_AV1 && !std::exchange(shows_existing_, false)) {
    return;
  }
  const std::size_t out_begin = out.size();
  std::size_t done = 0;
  for (const Slice& slice : slices_) {
    const std::size_t prefix = prefix_bytes(packet, slice);
    if (prefix == 0 || slice.begin - prefix < done) {
      out.resize(out_begin);
      done = 0;
      break;
    }
    const auto before = packet.subspan(done, slice.begin - prefix - done);
    out.insert(out.end(), before.begin(), before.end());
    const auto header = packet.subspan(slice.begin, slice.header_size);
    if (slice.header_size + 1 < slice.size) {
      if (length_bytes_ == 0) {
        out.insert(out.end(), kStartCode.begin(), kStartCode.end());
      } else {
        append_big_endian(header.size() + 1, length_bytes_, out);
      }
      out.insert(out.end(), header.begin(), header.end());
      out.push_back(kStopBit);
    } else {
      const auto whole = packet.subspan(slice.begin - prefix, prefix + slice.size);
      out.insert(out.end(), whole.begin(), whole.end());
    }
    done = slice.begin + slice.size;
  }
  slices_.clear();
  out.insert(out.end(), packet.begin() + static_cast<std::ptrdiff_t>(done), packet.end());
}

void StatePacketWriter::write_unit(std::span<const std::uint8_t> unit, std::vector<std::uint8_t>& out) const {
  if (codec_ == AV_CODEC_ID_AV1) {
    // An OBU tells its own size.
  } else if (length_bytes_ == 0) {
    out.push_back(0);
    out.insert(out.end(), kStartCode.begin(), kStartCode.end());
  } else {
    append_big_endian(unit.size(), length_bytes_, out);
  }
  out.insert(out.end(), unit.begin(), unit.end());
}

}  // namespace sparsevideo
