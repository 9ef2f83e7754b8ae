// SPDX-License-Identifier: Apache-2.0
// Which coded pictures predict from which: integers only, no FFmpeg.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

namespace sparsevideo {

using KeptPictures = std::set<std::int32_t>;

/// The pictures of a stream in decode order, and for each the earlier ones that it predicts from.
class ReferenceGraph {
 public:
  /// Appends the next picture. `references` must lie in [0, size()); the order does not matter.
  /// `retained` are further pictures that it keeps for later use (HEVC's reference picture set).
  void add_picture(std::span<const std::int32_t> references, std::span<const std::int32_t> retained);

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(lowest_.size()); }

  [[nodiscard]] std::span<const std::int32_t> references(std::int32_t picture) const {
    const auto index = static_cast<std::size_t>(picture);
    return std::span(references_)
        .subspan(static_cast<std::size_t>(offsets_[index]),
                 static_cast<std::size_t>(offsets_[index + 1] - offsets_[index]));
  }

  /// The first picture, in decode order, of `picture`'s closure.
  [[nodiscard]] std::int32_t lowest(std::int32_t picture) const {
    return lowest_[static_cast<std::size_t>(picture)];
  }

  /// The first picture that `picture` itself refers to or retains, or `picture`.
  [[nodiscard]] std::int32_t earliest(std::int32_t picture) const {
    return earliest_[static_cast<std::size_t>(picture)];
  }

  /// D(targets): the targets and, transitively, all that they refer to; ascending. What the pictures
  /// in `kept` refer to is not needed: their samples are at hand.
  [[nodiscard]] std::vector<std::int32_t> closure(std::span<const std::int32_t> targets,
                                                  const KeptPictures& kept = {}) const;

  [[nodiscard]] std::span<const std::int64_t> offsets() const { return offsets_; }
  [[nodiscard]] std::span<const std::int32_t> all_references() const { return references_; }
  [[nodiscard]] std::size_t size_bytes() const;

 private:
  std::vector<std::int64_t> offsets_ = {0};
  std::vector<std::int32_t> references_;
  std::vector<std::int32_t> lowest_;
  std::vector<std::int32_t> earliest_;
};

}  // namespace sparsevideo
