// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "ffmpeg_handles.h"

namespace sparsevideo {

/// A reconstructed picture with all that a decoder needs to predict from it; never changed.
using Anchor = std::shared_ptr<const AVFrame>;
using Anchors = std::map<std::int32_t, Anchor>;  // by coded picture

/// Reference pictures of all shards of this process, the least recently used forgotten first.
/// Holds none until it is given a capacity.
class AnchorCache {
 public:
  void set_capacity(std::size_t bytes);
  [[nodiscard]] std::size_t capacity_bytes() const;
  [[nodiscard]] std::size_t size_bytes() const;

  /// What is kept of a shard now. Stays valid when the cache forgets it.
  [[nodiscard]] Anchors anchors_of(std::uint64_t shard) const;

  /// Keeps a picture that a decoder with AV_CODEC_EXPORT_DATA_PICTURE_STATE reconstructed, or marks
  /// it as used if it is there.
  void keep(std::uint64_t shard, std::int32_t picture, const AVFrame& frame);
  void forget(std::uint64_t shard);

 private:
  using Key = std::pair<std::uint64_t, std::int32_t>;
  struct Entry {
    Key key;
    Anchor anchor;
    std::size_t bytes;
  };
  using Entries = std::list<Entry>;  // the most recently used last

  bool mark_used(const Key& key);
  void bound();

  mutable std::mutex mutex_;
  std::size_t capacity_bytes_ = 0;
  std::size_t size_bytes_ = 0;
  Entries entries_;
  std::map<Key, Entries::iterator> by_key_;
};

/// The cache of this process. A forked child begins with an empty one of the same capacity.
AnchorCache& anchor_cache();

}  // namespace sparsevideo
