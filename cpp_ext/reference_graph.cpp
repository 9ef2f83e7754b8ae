// SPDX-License-Identifier: Apache-2.0
#include "reference_graph.h"

#include <algorithm>
#include <stdexcept>

namespace sparsevideo {

void ReferenceGraph::add_picture(std::span<const std::int32_t> references,
                                 std::span<const std::int32_t> retained) {
  const std::int32_t picture = size();
  const auto in_order = [picture](std::int32_t other) { return other >= 0 && other < picture; };
  if (!std::ranges::all_of(references, in_order) || !std::ranges::all_of(retained, in_order)) {
    throw std::invalid_argument("a picture refers to one that is not before it in decode order");
  }
  const auto first = references_.insert(references_.end(), references.begin(), references.end());
  std::sort(first, references_.end());
  references_.erase(std::unique(first, references_.end()), references_.end());
  offsets_.push_back(static_cast<std::int64_t>(references_.size()));

  std::int32_t lowest = picture;
  std::int32_t earliest = picture;
  for (const std::int32_t reference : references) {
    lowest = std::min(lowest, lowest_[static_cast<std::size_t>(reference)]);
    earliest = std::min(earliest, reference);
  }
  for (const std::int32_t other : retained) {
    earliest = std::min(earliest, other);
  }
  lowest_.push_back(lowest);
  earliest_.push_back(earliest);
}

std::vector<std::int32_t> ReferenceGraph::closure(std::span<const std::int32_t> targets,
                                                  const KeptPictures& kept) const {
  if (targets.empty()) {
    return {};
  }
  std::int32_t begin = targets.front();
  std::int32_t end = targets.front();
  for (const std::int32_t target : targets) {
    begin = std::min(begin, lowest(target));
    end = std::max(end, target);
  }
  std::vector<bool> wanted(static_cast<std::size_t>(end - begin) + 1);
  for (const std::int32_t target : targets) {
    wanted[static_cast<std::size_t>(target - begin)] = true;
  }
  // References are earlier in decode order: one pass from the last picture to the first is enough.
  std::vector<std::int32_t> pictures;
  for (std::int32_t picture = end; picture >= begin; --picture) {
    if (wanted[static_cast<std::size_t>(picture - begin)]) {
      pictures.push_back(picture);
      if (kept.contains(picture)) {
        continue;
      }
      for (const std::int32_t reference : references(picture)) {
        wanted[static_cast<std::size_t>(reference - begin)] = true;
      }
    }
  }
  std::ranges::reverse(pictures);
  return pictures;
}

std::size_t ReferenceGraph::size_bytes() const {
  return offsets_.capacity() * sizeof(offsets_[0]) +
         (references_.capacity() + lowest_.capacity() + earliest_.capacity()) * sizeof(std::int32_t);
}

}  // namespace sparsevideo
