// SPDX-License-Identifier: Apache-2.0
// Whatever bytes a file holds, opening and decoding it ends, and stays inside its memory.
#include <algorithm>
#include <memory>
#include <random>

#include "check.h"
#include "clip_bytes.h"
#include "shard.h"
#include "stream_index.h"

using sparsevideo::DecodeResult;
using sparsevideo::Error;
using sparsevideo::FrameSize;
using sparsevideo::MemorySource;
using sparsevideo::Outcome;
using sparsevideo::Output;
using sparsevideo::PictureTraits;
using sparsevideo::Segment;
using sparsevideo::Shard;

namespace {

constexpr unsigned kDamagesOfAClip = 300;
constexpr std::size_t kGuardBytes = 64;
constexpr std::uint8_t kGuard = 0xA5;

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::size_t below(std::size_t end) { return engine_() % end; }

 private:
  std::mt19937 engine_;
};

auto place(Bytes& bytes, std::size_t offset) { return bytes.begin() + static_cast<std::ptrdiff_t>(offset); }

/// One to four wounds, most of them small.
void damage(Bytes& bytes, Random& random) {
  const std::size_t kinds = random.below(2) == 0 ? 3 : 6;  // the first three leave everything where it is
  for (std::size_t wounds = 1 + random.below(4); wounds > 0 && bytes.size() > 1; --wounds) {
    const std::size_t begin = random.below(bytes.size());
    const std::size_t most = random.below(3) == 0 ? bytes.size() : 40;
    const std::size_t size = std::min(bytes.size() - begin, 1 + random.below(most));
    switch (random.below(kinds)) {
      case 0:  // bits flip
        for (std::size_t flips = 1 + random.below(8); flips > 0; --flips) {
          bytes[random.below(bytes.size())] ^= static_cast<std::uint8_t>(1U << random.below(8));
        }
        break;
      case 1:  // bytes change
        for (std::size_t i = begin; i < begin + size; ++i) {
          bytes[i] = static_cast<std::uint8_t>(random.below(256));
        }
        break;
      case 2:  // a range is wiped out
        std::fill(place(bytes, begin), place(bytes, begin + size), random.below(2) == 0 ? 0x00 : 0xFF);
        break;
      case 3:  // a range is lost
        bytes.erase(place(bytes, begin), place(bytes, begin + size));
        break;
      case 4: {  // a range comes twice, or again somewhere else
        const Bytes again(place(bytes, begin), place(bytes, begin + size));
        const std::size_t where = random.below(2) == 0 ? begin + size : random.below(bytes.size());
        bytes.insert(place(bytes, where), again.begin(), again.end());
        break;
      }
      default:  // the end is lost
        bytes.resize(std::max<std::size_t>(1, bytes.size() - random.below(std::min(most, bytes.size()))));
    }
  }
}

void check_plan(const Shard& shard, std::span<const std::int64_t> frames) {
  const auto plan = shard.plan(frames);
  std::size_t targets = 0;
  for (const Segment& segment : plan.segments) {
    targets += segment.targets.size();
    for (const std::int32_t target : segment.targets) {
      const Outcome outcome = segment.outcomes.at(static_cast<std::size_t>(target - segment.start));
      const std::uint8_t traits = shard.index().traits()[static_cast<std::size_t>(target)];
      const bool is_header = (traits & PictureTraits::kShowsExisting) != 0 && !segment.contiguous;
      CHECK(outcome == (is_header ? Outcome::kStateOnly : Outcome::kReconstruct));
    }
  }
  CHECK(static_cast<std::int64_t>(targets) == plan.stats.unique);
}

/// Decodes frames into memory of exactly their size, and checks what is told about them.
DecodeResult decode(Shard& shard, std::span<const std::int64_t> frames, int threads) {
  const auto& records = shard.index().frames();
  std::vector<std::int64_t> offsets;
  std::vector<std::size_t> sizes;
  std::size_t bytes = 0;
  FrameSize size = {};
  for (const std::int64_t frame : frames) {
    const auto& record = records[static_cast<std::size_t>(frame)];
    if (static_cast<std::int64_t>(record.width) * record.height > 1'000'000) {
      size = {24, 32};  // a damaged size can be anything
    }
  }
  for (const std::int64_t frame : frames) {
    const auto& record = records[static_cast<std::size_t>(frame)];
    const FrameSize own = size == FrameSize{} ? FrameSize{record.height, record.width} : size;
    offsets.push_back(static_cast<std::int64_t>(bytes));
    sizes.push_back(static_cast<std::size_t>(own.width) * static_cast<std::size_t>(own.height) * 3);
    bytes += sizes.back();
  }
  Bytes out(bytes + kGuardBytes, kGuard);
  DecodeResult result =
      shard.decode(frames, Output{.data = out.data(), .offsets = offsets, .size = size}, threads, [] {});
  CHECK(std::all_of(place(out, bytes), out.end(), [](std::uint8_t byte) { return byte == kGuard; }));
  std::size_t next = 0;
  for (const auto& failure : result.failures) {
    CHECK(failure.request >= next && failure.request < frames.size() && *failure.cause.what() != '\0');
    next = failure.request + 1;
    const auto row = place(out, static_cast<std::size_t>(offsets[failure.request]));
    CHECK(std::all_of(row, row + static_cast<std::ptrdiff_t>(sizes[failure.request]),
                      [](std::uint8_t byte) { return byte == 0; }));
  }
  return result;
}

struct Tally {
  int opened = 0;
  int frames = 0;
  int failures = 0;
};

/// Opens, plans and decodes. An Error is a fine answer; any other exception is not.
void use(const Bytes& bytes, Random& random, Tally& tally) {
  try {
    Shard shard(std::make_unique<MemorySource>(bytes));
    ++tally.opened;
    const std::size_t count = shard.index().frames().size();
    CHECK(count > 0);
    for (const std::size_t wanted : {std::size_t{1}, std::size_t{4}, std::min<std::size_t>(count, 30)}) {
      std::vector<std::int64_t> frames;
      while (frames.size() < wanted) {
        frames.push_back(static_cast<std::int64_t>(random.below(count)));
      }
      check_plan(shard, frames);
      const DecodeResult result = decode(shard, frames, 1 + static_cast<int>(random.below(2)));
      tally.frames += static_cast<int>(wanted);
      tally.failures += static_cast<int>(result.failures.size());
    }
  } catch (const Error& error) {
    CHECK(*error.what() != '\0');
  }
}

TEST(every_frame_of_the_clips_decodes_before_they_are_damaged) {
  for (const Clip& clip : kClips) {
    Shard shard(std::make_unique<MemorySource>(clip_bytes(clip)));
    std::vector<std::int64_t> frames;
    for (std::size_t frame = 0; frame < shard.index().frames().size(); ++frame) {
      frames.push_back(static_cast<std::int64_t>(frame));
    }
    CHECK(frames.size() >= 6, clip.name);
    CHECK(decode(shard, frames, 1).failures.empty(), clip.name);
  }
}

TEST(damaged_clips_neither_crash_nor_hang_nor_leak) {
  for (const Clip& clip : kClips) {
    const Bytes whole = clip_bytes(clip);
    Tally tally;
    for (unsigned seed = 0; seed < kDamagesOfAClip; ++seed) {
      Random random(seed);
      Bytes bytes = whole;
      damage(bytes, random);
      use(bytes, random, tally);
    }
    // Neither so little damage that it is not met, nor so much that nothing is left to decode.
    CHECK(tally.opened > 0 && tally.opened < static_cast<int>(kDamagesOfAClip), clip.name);
    CHECK(tally.failures > 0 && tally.failures < tally.frames, clip.name);
    std::cout << "  " << clip.name << ": " << tally.opened << " of " << kDamagesOfAClip << " opened, "
              << tally.failures << " of " << tally.frames << " frames failed" << std::endl;
  }
}

TEST(every_truncation_of_a_clip_is_decoded_or_refused) {
  for (const Clip& clip : kClips) {
    const Bytes whole = clip_bytes(clip);
    Random random(1);
    Tally tally;
    for (std::size_t size = 0; size < whole.size(); size += 97) {
      use(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)), random, tally);
    }
  }
}

TEST(noise_is_refused) {
  Random random(1);
  Tally tally;
  for (const std::size_t size : {0U, 1U, 10U, 1000U, 20'000U}) {
    Bytes bytes(size);
    std::ranges::generate(bytes, [&] { return static_cast<std::uint8_t>(random.below(256)); });
    use(bytes, random, tally);
  }
  CHECK(tally.opened == 0);
}

}  // namespace
