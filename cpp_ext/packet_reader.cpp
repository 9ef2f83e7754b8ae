// SPDX-License-Identifier: Apache-2.0
#include "packet_reader.h"

#include <algorithm>
#include <string>

namespace sparsevideo {

namespace {

// Reading on over a gap costs less than asking again; a local read of a few pages is one request.
constexpr std::uint64_t kLargestGapBytes = 4096;
constexpr std::uint64_t kLargestReadBytes = 1U << 20U;

}  // namespace

PacketReader::PacketReader(ByteSource& source, const StreamIndex& index, std::vector<std::int32_t> packets)
    : source_(source), index_(index), wanted_(std::move(packets)) {}

std::span<const std::uint8_t> PacketReader::read(std::int32_t packet) {
  const PacketRecord& record = index_.packets()[static_cast<std::size_t>(packet)];
  const bool has_range = index_.packets_are_byte_ranges() && record.position >= 0;
  const auto bytes = has_range ? read_range(packet) : demux(packet);
  if (bytes.size() != record.size_bytes || checksum(bytes) != record.checksum) {
    throw Error(ErrorKind::kRead, "the file changed since it was indexed");
  }
  return bytes;
}

std::span<const std::uint8_t> PacketReader::read_range(std::int32_t packet) {
  const PacketRecord& record = index_.packets()[static_cast<std::size_t>(packet)];
  const auto begin = static_cast<std::uint64_t>(record.position);
  const auto is_buffered = [&] {
    return begin >= buffer_position_ && begin + record.size_bytes <= buffer_position_ + buffer_.size();
  };
  if (!is_buffered()) {
    const auto next = std::ranges::lower_bound(wanted_, packet);
    fill(static_cast<std::size_t>(next - wanted_.begin()));
    if (!is_buffered()) {
      throw Error(ErrorKind::kRead, "the file is shorter than when it was indexed");
    }
  }
  return std::span(buffer_).subspan(begin - buffer_position_, record.size_bytes);
}

void PacketReader::fill(std::size_t next) {
  const auto packets = index_.packets();
  const PacketRecord& first = packets[static_cast<std::size_t>(wanted_.at(next))];
  const auto begin = static_cast<std::uint64_t>(first.position);
  std::uint64_t end = begin + first.size_bytes;
  for (std::size_t i = next + 1; i < wanted_.size(); ++i) {
    const PacketRecord& record = packets[static_cast<std::size_t>(wanted_[i])];
    const auto position = static_cast<std::uint64_t>(record.position);
    const std::uint64_t position_end = position + record.size_bytes;
    if (record.position < 0 || position < end || position - end > kLargestGapBytes ||
        position_end - begin > kLargestReadBytes) {
      break;
    }
    end = position_end;
  }
  buffer_position_ = begin;
  buffer_.resize(end - begin);
  buffer_.resize(source_.read_at(begin, buffer_));
  range_bytes_ += static_cast<std::int64_t>(buffer_.size());
}

std::int64_t PacketReader::bytes_read() const { return range_bytes_ + demuxed_bytes_; }

std::span<const std::uint8_t> PacketReader::demux(std::int32_t packet) {
  if (!demuxer_ || packet < demuxed_number_) {
    demuxer_.reset();
    demuxer_.emplace(source_, index_.codec_has_graph());
    demuxed_ = make_packet();
    demuxed_number_ = -1;
  }
  while (demuxed_number_ < packet) {
    if (!demuxer_->read(*demuxed_)) {
      throw Error(ErrorKind::kRead, "the file is shorter than when it was indexed");
    }
    ++demuxed_number_;
    demuxed_bytes_ += demuxed_->size;
  }
  const PacketRecord& record = index_.packets()[static_cast<std::size_t>(packet)];
  if (demuxed_->pts != record.pts || demuxed_->dts != record.dts) {
    throw Error(ErrorKind::kRead, "the file changed since it was indexed");
  }
  return {demuxed_->data, static_cast<std::size_t>(demuxed_->size)};
}

}  // namespace sparsevideo
