// SPDX-License-Identifier: Apache-2.0
// Streams as the planner sees them, drawn at random: what encoders make, and what none would.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "plan.h"

using sparsevideo::PictureTraits;
using sparsevideo::ReferenceGraph;

using Pictures = std::vector<std::int32_t>;

constexpr std::int64_t kNoPts = std::numeric_limits<std::int64_t>::min();

template <typename T>
T& at(std::vector<T>& items, std::int32_t index) {
  return items.at(static_cast<std::size_t>(index));
}
template <typename T>
const T& at(const std::vector<T>& items, std::int32_t index) {
  return items.at(static_cast<std::size_t>(index));
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::int32_t below(std::int32_t end) {
    return static_cast<std::int32_t>(engine_() % static_cast<std::uint32_t>(end));
  }
  std::int32_t between(std::int32_t begin, std::int32_t last) { return begin + below(last - begin + 1); }
  bool chance(int percent) { return below(100) < percent; }

  /// Each item with this chance, but at least `least` of them if there are as many; ascending.
  Pictures some_of(const Pictures& items, int percent, std::size_t least = 0) {
    Pictures chosen;
    for (std::size_t i = 0; i < items.size(); ++i) {
      const bool must = items.size() - i + chosen.size() <= least;
      if (must || chance(percent)) {
        chosen.push_back(items[i]);
      }
    }
    return chosen;
  }

 private:
  std::mt19937 engine_;
};

enum class Kind {
  kClosedGops,
  kOpenGopsH264,  // leading pictures reach back over an I picture
  kOpenGopsHevc,  // the same, and a decoder that starts at the I picture skips them by itself
  kAllIntra,
  kOpaqueIslands,
  kNoGraph,
  kAnything,  // any references, any traits, any times
};
constexpr Kind kKinds[] = {Kind::kClosedGops,    Kind::kOpenGopsH264, Kind::kOpenGopsHevc, Kind::kAllIntra,
                           Kind::kOpaqueIslands, Kind::kNoGraph,      Kind::kAnything};

struct Stream {
  ReferenceGraph graph;
  std::vector<Pictures> references;  // of each picture
  std::vector<Pictures> retained;
  std::vector<std::uint8_t> traits;
  std::vector<std::int64_t> pts;
  Pictures gop;  // of each picture: the I picture that begins it
  std::vector<bool> leading;
  bool has_graph = true;

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(traits.size()); }
  [[nodiscard]] bool has(std::int32_t picture, std::uint8_t trait) const {
    return (at(traits, picture) & trait) != 0;
  }
};

class StreamMaker {
 public:
  StreamMaker(Kind kind, Random& random) : kind_(kind), random_(random) {}

  Stream make() {
    if (kind_ == Kind::kAnything) {
      add_anything();
    } else {
      for (std::int32_t gops = random_.between(1, 7); gops > 0; --gops) {
        add_gop();
      }
    }
    for (std::uint8_t& traits : stream_.traits) {
      if (kind_ == Kind::kOpaqueIslands && random_.chance(4)) {
        traits |= PictureTraits::kOpaque;
      }
    }
    stream_.has_graph = kind_ != Kind::kNoGraph;
    return std::move(stream_);
  }

 private:
  [[nodiscard]] bool hevc() const { return kind_ == Kind::kOpenGopsHevc; }

  std::int32_t add(std::int64_t pts, Pictures references, Pictures retained, unsigned traits) {
    if (kind_ == Kind::kNoGraph) {
      references.clear();
      retained.clear();
    }
    stream_.graph.add_picture(references, retained);
    stream_.references.push_back(std::move(references));
    stream_.retained.push_back(std::move(retained));
    stream_.traits.push_back(static_cast<std::uint8_t>(traits));
    stream_.pts.push_back(pts);
    stream_.gop.push_back(gop_);
    stream_.leading.push_back(false);
    return stream_.size() - 1;
  }

  /// `count` pictures shown from `pts` on, between two anchors; `held` may be referred to as well.
  void add_b_pictures(std::int64_t pts, std::int32_t count, Pictures& held, const Pictures& anchors) {
    if (count == 0) {
      return;
    }
    const std::int32_t middle = count / 2;
    Pictures references = random_.some_of(held, 20);
    references.insert(references.end(), anchors.begin(), anchors.end());
    const bool pyramid = count > 1 && random_.chance(70);
    const bool disposable = !pyramid && random_.chance(70);
    const std::int32_t picture =
        add(pts + middle, references, hevc() ? random_.some_of(held, 40) : Pictures{},
            disposable ? PictureTraits::kDisposable : 0U);
    Pictures inner = anchors;
    if (!disposable) {
      held.push_back(picture);
      inner.push_back(picture);
    }
    add_b_pictures(pts, middle, held, inner);
    add_b_pictures(pts + middle + 1, count - middle - 1, held, inner);
  }

  void add_gop() {
    const bool open = kind_ == Kind::kOpenGopsH264 || hevc() || kind_ == Kind::kNoGraph;
    const bool reset = stream_.size() == 0 || !open || random_.chance(20);
    const std::int32_t leading = reset ? 0 : random_.between(0, 4);
    gop_ = stream_.size();
    unsigned traits = PictureTraits::kKey | PictureTraits::kStart;
    traits |= reset ? PictureTraits::kReset : 0U;
    traits |= hevc() ? PictureTraits::kLeadingSkipped : 0U;
    std::int32_t anchor = add(next_pts_ + leading, {}, {}, traits);
    Pictures before = held_;
    const std::int32_t first_leading = stream_.size();
    if (leading > 0) {
      add_b_pictures(next_pts_, leading, before, {last_anchor_, anchor});
    }
    std::fill(stream_.leading.begin() + first_leading, stream_.leading.end(), true);
    next_pts_ += leading + 1;
    held_ = {anchor};
    for (std::int32_t parts = random_.between(0, 5); parts > 0; --parts) {
      const std::int32_t between = kind_ == Kind::kAllIntra ? 0 : random_.between(0, 5);
      const bool intra = kind_ == Kind::kAllIntra || (kind_ != Kind::kOpenGopsHevc && random_.chance(10));
      const std::int32_t next =
          intra ? add(next_pts_ + between, {}, {}, kind_ == Kind::kNoGraph ? 0U : PictureTraits::kStart + 0U)
                : add(next_pts_ + between, random_.some_of(held_, 30, 1),
                      hevc() ? random_.some_of(held_, 40) : Pictures{}, 0);
      add_b_pictures(next_pts_, between, held_, {anchor, next});
      held_.push_back(next);
      next_pts_ += between + 1;
      anchor = next;
      while (held_.size() > 6) {
        held_.erase(held_.begin() + random_.below(static_cast<std::int32_t>(held_.size())));
      }
    }
    last_anchor_ = anchor;
  }

  void add_anything() {
    const std::int32_t size = random_.between(1, 40);
    const std::int32_t reach = random_.between(1, size);
    const int density = random_.below(40);
    const int trait_chances[] = {10, random_.between(5, 60), 5, random_.below(60),
                                 5,  random_.below(4),       8, random_.below(3)};
    const bool untimed = random_.chance(20);
    for (std::int32_t picture = 0; picture < size; ++picture) {
      Pictures near;
      for (std::int32_t other = std::max(0, picture - reach); other < picture; ++other) {
        near.push_back(other);
      }
      unsigned traits = 0;
      for (unsigned bit = 0; bit < 8; ++bit) {
        traits |= random_.chance(trait_chances[bit]) ? 1U << bit : 0U;
      }
      const bool intra = (traits & PictureTraits::kStart) != 0 && random_.chance(80);
      const std::int64_t pts = untimed && random_.chance(50) ? kNoPts : picture + random_.below(6);
      add(pts, intra ? Pictures{} : random_.some_of(near, density),
          intra ? Pictures{} : random_.some_of(near, density / 4), traits);
    }
  }

  Kind kind_;
  Random& random_;
  Stream stream_;
  Pictures held_;
  std::int32_t gop_ = 0;
  std::int32_t last_anchor_ = 0;
  std::int64_t next_pts_ = 0;
};
