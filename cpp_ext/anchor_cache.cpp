// SPDX-License-Identifier: Apache-2.0
#include "anchor_cache.h"

#include <pthread.h>

#include <atomic>

namespace sparsevideo {

namespace {

// The bytes that a frame keeps in memory; 0 if a decoder could not predict from it.
std::size_t bytes_of(const AVFrame& frame) {
  const AVFrameSideData* state = av_frame_get_side_data(&frame, AV_FRAME_DATA_PICTURE_STATE);
  if (state == nullptr) {
    return 0;
  }
  std::size_t bytes = reinterpret_cast<const AVPictureState*>(state->data)->size;
  for (const AVBufferRef* buffer : frame.buf) {
    bytes += buffer != nullptr ? buffer->size : 0;
  }
  return bytes;
}

}  // namespace

void AnchorCache::set_capacity(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  capacity_bytes_ = bytes;
  bound();
}

std::size_t AnchorCache::capacity_bytes() const {
  const std::lock_guard lock(mutex_);
  return capacity_bytes_;
}

std::size_t AnchorCache::size_bytes() const {
  const std::lock_guard lock(mutex_);
  return size_bytes_;
}

Anchors AnchorCache::anchors_of(std::uint64_t shard) const {
  const std::lock_guard lock(mutex_);
  Anchors anchors;
  for (auto found = by_key_.lower_bound({shard, 0}); found != by_key_.end() && found->first.first == shard;
       ++found) {
    anchors.emplace_hint(anchors.end(), found->first.second, found->second->anchor);
  }
  return anchors;
}

void AnchorCache::keep(std::uint64_t shard, std::int32_t picture, const AVFrame& frame) {
  const std::lock_guard lock(mutex_);
  const Key key{shard, picture};
  const std::size_t bytes = bytes_of(frame);
  if (mark_used(key) || bytes == 0 || bytes > capacity_bytes_) {
    return;
  }
  const Anchor anchor(check_allocated(av_frame_clone(&frame)), FreeByAddress<av_frame_free>());
  entries_.push_back({key, anchor, bytes});
  by_key_.emplace(key, std::prev(entries_.end()));
  size_bytes_ += bytes;
  bound();
}

void AnchorCache::forget(std::uint64_t shard) {
  const std::lock_guard lock(mutex_);
  auto found = by_key_.lower_bound({shard, 0});
  while (found != by_key_.end() && found->first.first == shard) {
    size_bytes_ -= found->second->bytes;
    entries_.erase(found->second);
    found = by_key_.erase(found);
  }
}

bool AnchorCache::mark_used(const Key& key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) {
    return false;
  }
  entries_.splice(entries_.end(), entries_, found->second);
  return true;
}

void AnchorCache::bound() {
  while (size_bytes_ > capacity_bytes_) {
    const Entry& oldest = entries_.front();
    size_bytes_ -= oldest.bytes;
    by_key_.erase(oldest.key);
    entries_.pop_front();
  }
}

namespace {

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables, cppcoreguidelines-owning-memory):
// it is the process's cache, and what a parent left behind is locked or half changed: never destroyed
std::atomic<AnchorCache*> of_process = nullptr;
std::size_t capacity_at_fork = 0;

void before_fork() { capacity_at_fork = anchor_cache().capacity_bytes(); }

void begin_anew_in_child() {
  of_process = new AnchorCache();
  of_process.load()->set_capacity(capacity_at_fork);
}

const int registered = pthread_atfork(before_fork, nullptr, begin_anew_in_child);

}  // namespace

AnchorCache& anchor_cache() {
  AnchorCache* cache = of_process.load();
  if (cache == nullptr) {
    auto* made = new AnchorCache();
    if (of_process.compare_exchange_strong(cache, made)) {
      return *made;
    }
    delete made;
  }
  return *cache;
}
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables, cppcoreguidelines-owning-memory)

}  // namespace sparsevideo
