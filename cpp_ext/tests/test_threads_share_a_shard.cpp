// SPDX-License-Identifier: Apache-2.0
// Many threads decode from one shard, with an anchor cache that is too small for them all.
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "anchor_cache.h"
#include "check.h"
#include "clip_bytes.h"
#include "shard.h"
#include "thread_budget.h"

using sparsevideo::anchor_cache;
using sparsevideo::FrameSize;
using sparsevideo::MemorySource;
using sparsevideo::Output;
using sparsevideo::Shard;

namespace {

constexpr int kThreads = 4;
constexpr int kRequestsOfAThread = 12;
constexpr std::size_t kFramesOfARequest = 5;
constexpr FrameSize kSize{24, 32};
constexpr std::size_t kFrameBytes = std::size_t{24} * 32 * 3;

Bytes decode(Shard& shard, std::span<const std::int64_t> frames, int threads) {
  std::vector<std::int64_t> offsets;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    offsets.push_back(static_cast<std::int64_t>(i * kFrameBytes));
  }
  Bytes out(frames.size() * kFrameBytes);
  const auto result =
      shard.decode(frames, Output{.data = out.data(), .offsets = offsets, .size = kSize}, threads, [] {});
  CHECK(result.failures.empty(), result.failures.front().cause.what());
  return out;
}

/// The number of requests, of all threads together, that did not give the frames of a decode alone.
int count_wrong_requests(Shard& shard) {
  std::vector<std::int64_t> all(shard.index().frames().size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<std::int64_t>(i);
  }
  const Bytes expected = decode(shard, all, 1);
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (unsigned thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        std::mt19937 random(thread);
        for (int request = 0; request < kRequestsOfAThread; ++request) {
          std::vector<std::int64_t> frames;
          for (std::size_t i = 0; i < kFramesOfARequest; ++i) {
            frames.push_back(static_cast<std::int64_t>(random() % all.size()));
          }
          const Bytes out = decode(shard, frames, 2);
          for (std::size_t i = 0; i < frames.size(); ++i) {
            const auto place = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(frames[i]) * kFrameBytes);
            wrong += std::equal(out.begin() + static_cast<std::ptrdiff_t>(i * kFrameBytes),
                                out.begin() + static_cast<std::ptrdiff_t>((i + 1) * kFrameBytes),
                                expected.begin() + place)
                         ? 0
                         : 1;
          }
          if (request % 4 == 0) {
            anchor_cache().set_capacity(request % 8 == 0 ? 60'000 : 300'000);
          }
        }
      });
    }
  }
  return wrong;
}

}  // namespace

TEST(threads_that_share_a_shard_and_the_anchor_cache_get_exact_frames) {
  sparsevideo::set_thread_budget(kThreads);
  for (const Clip& clip : kClips) {
    anchor_cache().set_capacity(0);
    Shard shard(std::make_unique<MemorySource>(clip_bytes(clip)));
    CHECK(count_wrong_requests(shard) == 0, clip.name);
  }
}

TEST(shards_that_come_and_go_leave_no_anchors) {
  anchor_cache().set_capacity(1'000'000);
  {
    std::vector<std::jthread> threads;
    for (const Clip& clip : kClips) {
      threads.emplace_back([&clip] {
        for (int i = 0; i < 3; ++i) {
          Shard shard(std::make_unique<MemorySource>(clip_bytes(clip)));
          const auto last = static_cast<std::int64_t>(shard.index().frames().size()) - 1;
          decode(shard, std::vector{last}, 1);
        }
      });
    }
  }
  CHECK(anchor_cache().size_bytes() == 0);
}
