// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "byte_source.h"
#include "demuxer.h"
#include "stream_index.h"

namespace sparsevideo {

/// Brings the bytes of chosen packets, checked against what was indexed.
///
/// Where packets are byte ranges of the file, ranges that lie close together are read at once and
/// nothing else is touched. From other containers the packets are demuxed again, in file order.
class PacketReader {
 public:
  /// `packets` are the numbers of the packets that will be asked for, ascending.
  PacketReader(ByteSource& source, const StreamIndex& index, std::vector<std::int32_t> packets);

  /// The bytes of a packet; valid until the next call. Throws Error(kRead) if they are not those
  /// that were indexed.
  std::span<const std::uint8_t> read(std::int32_t packet);

  [[nodiscard]] std::int64_t bytes_read() const;

 private:
  std::span<const std::uint8_t> read_range(std::int32_t packet);
  std::span<const std::uint8_t> demux(std::int32_t packet);
  void fill(std::size_t next);

  ByteSource& source_;
  const StreamIndex& index_;
  std::vector<std::int32_t> wanted_;
  std::vector<std::uint8_t> buffer_;
  std::uint64_t buffer_position_ = 0;
  std::int64_t range_bytes_ = 0;
  std::int64_t demuxed_bytes_ = 0;
  std::optional<Demuxer> demuxer_;
  PacketPtr demuxed_;
  std::int32_t demuxed_number_ = -1;
};

}  // namespace sparsevideo
