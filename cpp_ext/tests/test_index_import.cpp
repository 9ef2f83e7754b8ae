// SPDX-License-Identifier: Apache-2.0
// An index that comes from outside gives the same frames as one that was made by a pass. Whatever numbers it
// holds, it is refused, or what is decoded with it ends and stays inside its memory.
#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <string>

#include "check.h"
#include "clip_bytes.h"
#include "index_contents.h"
#include "shard.h"

using sparsevideo::Error;
using sparsevideo::ErrorKind;
using sparsevideo::IndexContents;
using sparsevideo::MemorySource;
using sparsevideo::Output;
using sparsevideo::Shard;
using sparsevideo::StateEvent;

namespace {

constexpr unsigned kChangesOfAClip = 400;
constexpr std::size_t kGuardBytes = 64;
constexpr std::uint8_t kGuard = 0xA5;
constexpr std::size_t kMostBytes = 4'000'000;

IndexContents contents_of(const Clip& clip) {
  Shard shard(std::make_unique<MemorySource>(clip_bytes(clip)));
  return shard.index().contents(shard.source());
}

/// All frames in their own sizes, behind each other; nothing if that would take too much memory.
Bytes decode_all(Shard& shard, std::size_t* failures) {
  std::vector<std::int64_t> frames;
  std::vector<std::int64_t> offsets;
  std::size_t bytes = 0;
  for (const auto& record : shard.index().frames()) {
    frames.push_back(static_cast<std::int64_t>(frames.size()));
    offsets.push_back(static_cast<std::int64_t>(bytes));
    bytes += static_cast<std::size_t>(record.width) * static_cast<std::size_t>(record.height) * 3;
  }
  if (bytes > kMostBytes) {
    return {};
  }
  Bytes out(bytes + kGuardBytes, kGuard);
  *failures = shard.decode(frames, Output{.data = out.data(), .offsets = offsets, .size = {}}, 1, [] {})
                  .failures.size();
  for (std::size_t i = bytes; i < out.size(); ++i) {
    CHECK(out[i] == kGuard);
  }
  return out;
}

/// Numbers that are likely to hurt, and any others.
template <typename T>
T hostile(std::mt19937_64& random, T now) {
  constexpr T kLowest = std::numeric_limits<T>::min();
  constexpr T kHighest = std::numeric_limits<T>::max();
  switch (random() % 8) {
    case 0:
      return 0;
    case 1:
      return kLowest;
    case 2:
      return kHighest;
    case 3:
      return static_cast<T>(static_cast<std::uint64_t>(now) + 1);
    case 4:
      return static_cast<T>(static_cast<std::uint64_t>(now) - 1);
    case 5:
      return static_cast<T>(-1);
    case 6:
      return static_cast<T>(random() % 70);
    default:
      return static_cast<T>(random());
  }
}

/// Changes one value, or what else a column can suffer.
class Change {
 public:
  explicit Change(std::mt19937_64& random) : random_(random) {}

  void operator()(const char*, std::int64_t& number) const { number = hostile(random_, number); }
  void operator()(const char*, std::string& text) const {
    constexpr const char* kTexts[] = {"",    "av1",         "hevc", "h264",   "mjpeg",
                                      "aac", "yuv444p10le", "gray", "nothing"};
    text = kTexts[random_() % std::size(kTexts)];
  }
  void operator()(const char*, std::vector<StateEvent>& events) const {
    if (events.empty() || random_() % 3 == 0) {
      events.push_back({hostile(random_, 0), Bytes(random_() % 50, 1)});
    } else {
      events[random_() % events.size()].picture = hostile(random_, 0);
    }
  }
  template <typename T>
  void operator()(const char*, std::vector<T>& values) const {
    const std::size_t kind = random_() % 10;
    if (values.empty() || kind == 0) {
      values.push_back(hostile(random_, T{0}));
    } else if (kind == 1) {
      values.pop_back();
    } else if (kind == 2) {
      values.clear();
    } else if (kind == 3) {
      std::ranges::fill(values, hostile(random_, values.front()));
    } else if (kind == 4) {
      std::swap(values[random_() % values.size()], values[random_() % values.size()]);
    } else {
      T& value = values[random_() % values.size()];
      value = hostile(random_, value);
    }
  }

 private:
  std::mt19937_64& random_;
};

void change(IndexContents& contents, std::mt19937_64& random) {
  std::size_t count = 0;
  const auto counter = [&count](const char*, const auto&) { ++count; };
  sparsevideo::visit_facts(contents, counter);
  sparsevideo::visit_columns(contents, counter);
  for (std::size_t changes = 1 + random() % 2; changes > 0; --changes) {
    std::size_t left = random() % count;
    const auto pick = [&](const char* name, auto& member) {
      if (left-- == 0) {
        Change{random}(name, member);
      }
    };
    sparsevideo::visit_facts(contents, pick);
    sparsevideo::visit_columns(contents, pick);
  }
}

TEST(index_from_outside_gives_the_frames_of_a_pass) {
  for (const Clip& clip : kClips) {
    Shard by_pass(std::make_unique<MemorySource>(clip_bytes(clip)));
    Shard imported(std::make_unique<MemorySource>(clip_bytes(clip)), contents_of(clip));
    CHECK(imported.source().bytes_read() <= imported.source().size_bytes(), clip.name);
    std::size_t failures = 0;
    CHECK(decode_all(imported, &failures) == decode_all(by_pass, &failures), clip.name);
    CHECK(failures == 0, clip.name);
  }
}

TEST(index_of_another_file_is_refused) {
  for (const Clip& clip : kClips) {
    const IndexContents contents = contents_of(clip);
    Bytes longer = clip_bytes(clip);
    longer.push_back(0);
    Bytes other = clip_bytes(clip);
    other[3] ^= 1U;
    for (const Bytes& bytes : {longer, other}) {
      const Error error =
          thrown_by<Error>([&] { const Shard shard(std::make_unique<MemorySource>(bytes), contents); });
      CHECK(error.kind() == ErrorKind::kIndex, clip.name, ": ", error.what());
    }
  }
}

TEST(hostile_numbers_neither_crash_nor_hang_nor_write_outside) {
  for (const Clip& clip : kClips) {
    const IndexContents whole = contents_of(clip);
    int refused = 0;
    int taken = 0;
    for (unsigned seed = 0; seed < kChangesOfAClip; ++seed) {
      std::mt19937_64 random(seed);
      IndexContents contents = whole;
      change(contents, random);
      try {
        Shard shard(std::make_unique<MemorySource>(clip_bytes(clip)), contents);
        ++taken;
        std::size_t failures = 0;
        decode_all(shard, &failures);
      } catch (const Error& error) {
        ++refused;
        CHECK(*error.what() != '\0');
      }
    }
    CHECK(refused > 50 && taken > 50, clip.name, ": ", refused, " refused");
    std::cout << "  " << clip.name << ": " << refused << " of " << kChangesOfAClip << " refused" << std::endl;
  }
}

}  // namespace
