// SPDX-License-Identifier: Apache-2.0
// What to do with every coded picture so that the targets come out: integers in, integers out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference_graph.h"

namespace sparsevideo {

enum class Outcome : std::uint8_t {
  kDrop,         // never sent to the decoder
  kStateOnly,    // its headers update the decoder's state, and there may be nothing else in it
  kReconstruct,  // decoded in full
  kRestore,      // the same as kStateOnly, but its samples are put in place
};

/// What the planner knows of a picture besides its references.
struct PictureTraits {
  static constexpr std::uint8_t kKey = 1U << 0U;             // the container calls it a key frame
  static constexpr std::uint8_t kStart = 1U << 1U;           // decoding may start here, if the graph agrees
  static constexpr std::uint8_t kDiscard = 1U << 2U;         // decoded, but never shown (edit lists)
  static constexpr std::uint8_t kDisposable = 1U << 3U;      // left out without a trace when nothing needs it
  static constexpr std::uint8_t kShowsExisting = 1U << 4U;   // a header that shows what it refers to
  static constexpr std::uint8_t kOpaque = 1U << 5U;          // its references are not known for sure
  static constexpr std::uint8_t kReset = 1U << 6U;           // nothing after it depends on what is before
  static constexpr std::uint8_t kLeadingSkipped = 1U << 7U;  // a start here skips its leading pictures
};

/// Pictures [start, start + outcomes.size()) in decode order, handled by one decoder.
struct Segment {
  std::int32_t start = 0;
  std::vector<Outcome> outcomes;
  std::vector<std::int32_t> targets;  // ascending
  bool contiguous = false;            // no graph: every picture from start on is reconstructed
  [[nodiscard]] std::int32_t stop() const { return start + static_cast<std::int32_t>(outcomes.size()); }
};

/// Plans over one stream. Keeps references to what it is given.
class Planner {
 public:
  /// `pts[picture]` may be INT64_MIN where it is not known. `has_graph` false: references are not
  /// known at all, and every target is decoded from the latest start that is shown no later.
  Planner(const ReferenceGraph& graph, std::span<const std::uint8_t> traits,
          std::span<const std::int64_t> pts, bool has_graph);

  /// Segments in ascending order whose targets are `targets` (ascending, distinct pictures). The
  /// samples of the pictures in `kept` are at hand.
  [[nodiscard]] std::vector<Segment> plan(std::span<const std::int32_t> targets,
                                          const KeptPictures& kept = {}) const;

  /// One segment from the reset before the first target, everything reconstructed.
  [[nodiscard]] Segment plan_contiguous(std::span<const std::int32_t> targets) const;

 private:
  struct Start {
    std::int32_t picture;
    std::int32_t blocked_from;  // the first picture that a decoder started here cannot pass
  };

  [[nodiscard]] std::int32_t start_for(std::int32_t no_later_than, std::int32_t last_target,
                                       std::int64_t first_pts) const;
  [[nodiscard]] bool is_opaque(std::int32_t target) const;
  [[nodiscard]] std::int32_t reset_before(std::int32_t picture) const;
  [[nodiscard]] Segment sparse_segment(std::int32_t start, std::vector<std::int32_t> targets,
                                       const KeptPictures& kept) const;

  const ReferenceGraph& graph_;
  std::span<const std::uint8_t> traits_;
  std::span<const std::int64_t> pts_;
  bool has_graph_;
  std::vector<Start> starts_;
  std::vector<std::int32_t> resets_;
  std::vector<std::int32_t> opaque_;
};

}  // namespace sparsevideo
