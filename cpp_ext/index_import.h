// SPDX-License-Identifier: Apache-2.0
// How a StreamIndex is made of what an index file holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "index_contents.h"
#include "stream_index.h"

namespace sparsevideo {

/// Believes nothing: whatever the numbers are, the index that comes out can be planned and decoded with.
/// Lives only as long as the constructor of StreamIndex.
class StreamIndex::Import {
 public:
  Import(StreamIndex& index, const IndexContents& contents, std::uint64_t shard_bytes);
  void run();

 private:
  void take_parameters();
  void take_facts();
  void take_packets();
  void take_packet(std::size_t row);
  void take_picture(std::size_t row);
  void take_frames();
  [[nodiscard]] std::vector<StateEvent> checked_events(const char* name,
                                                       const std::vector<StateEvent>& events) const;
  template <typename T>
  void check_lists(const char* name, const std::vector<std::int64_t>& offsets,
                   const std::vector<T>& values) const;

  StreamIndex& index_;
  const IndexContents& contents_;
  std::uint64_t shard_bytes_;
};

}  // namespace sparsevideo
