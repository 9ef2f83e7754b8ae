// SPDX-License-Identifier: Apache-2.0
#include "anchor_cache.h"

#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

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

// The system gets the pages back at once. The heap of whatever thread has decoded the picture would
// keep them for long after the cache has forgotten it.
AVBufferRef* allocate_pages(std::size_t size) {
  void* pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    throw std::bad_alloc();
  }
  const auto give_back = [](void* bytes, std::uint8_t* data) {
    munmap(data, reinterpret_cast<std::uintptr_t>(bytes));
  };
  // NOLINTNEXTLINE(performance-no-int-to-ptr): FFmpeg hands the pointer on and never follows it
  void* bytes = reinterpret_cast<void*>(size);
  AVBufferRef* buffer = av_buffer_create(static_cast<std::uint8_t*>(pages), size, give_back, bytes, 0);
  if (buffer == nullptr) {
    munmap(pages, size);
    throw std::bad_alloc();
  }
  return buffer;
}

// With memory of its own: that of a decoder's pool is only given back when all its pictures are.
Anchor copy_of(const AVFrame& frame) {
  const std::shared_ptr<AVFrame> copy(check_allocated(av_frame_clone(&frame)),
                                      FreeByAddress<av_frame_free>());
  for (std::size_t i = 0; i < std::size(copy->buf) && copy->buf[i] != nullptr; ++i) {
    AVBufferRef* buffer = allocate_pages(copy->buf[i]->size);
    std::memcpy(buffer->data, copy->buf[i]->data, copy->buf[i]->size);
    for (std::uint8_t*& plane : copy->data) {
      const std::ptrdiff_t offset = plane - copy->buf[i]->data;
      if (plane != nullptr && offset >= 0 && std::cmp_less(offset, copy->buf[i]->size)) {
        plane = buffer->data + offset;
      }
    }
    av_buffer_unref(&copy->buf[i]);
    copy->buf[i] = buffer;
  }
  copy->extended_data = copy->data;
  return copy;
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
  const Key key{shard, picture};
  const std::size_t bytes = bytes_of(frame);
  {
    const std::lock_guard lock(mutex_);
    if (mark_used(key) || bytes == 0 || bytes > capacity_bytes_) {
      return;
    }
  }
  const Anchor anchor = copy_of(frame);  // hundreds of kilobytes, for which other threads don't wait
  const std::lock_guard lock(mutex_);
  if (mark_used(key)) {  // another thread was quicker
    return;
  }
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
