// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <algorithm>
#include <limits>
#include <ranges>
#include <utility>

namespace sparsevideo {

namespace {

constexpr std::int64_t kNoPts = std::numeric_limits<std::int64_t>::min();
constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();

// The earlier of two times, of which either may not be known.
std::int64_t earlier_pts(std::int64_t left, std::int64_t right) {
  return left == kNoPts ? right : right == kNoPts ? left : std::min(left, right);
}

std::size_t at(std::int32_t picture) { return static_cast<std::size_t>(picture); }

}  // namespace

Planner::Planner(const ReferenceGraph& graph, std::span<const std::uint8_t> traits,
                 std::span<const std::int64_t> pts, bool has_graph)
    : graph_(graph), traits_(traits), pts_(pts), has_graph_(has_graph) {
  // `open` holds the starts that nothing has blocked yet, ascending. A picture that reaches back to
  // `earliest` blocks the starts in (earliest, picture), unless it can be left out.
  std::vector<std::size_t> open;
  bool leading_skipped = false;
  for (std::int32_t picture = 0; picture < std::ssize(traits); ++picture) {
    const std::uint8_t trait = traits[at(picture)];
    const std::int32_t earliest = has_graph ? graph.earliest(picture) : picture;
    if ((trait & PictureTraits::kLeadingSkipped) != 0) {
      leading_skipped = true;
    }
    if ((trait & PictureTraits::kDisposable) == 0 && !leading_skipped) {
      while (!open.empty() && starts_[open.back()].picture > earliest) {
        starts_[open.back()].blocked_from = picture;
        open.pop_back();
      }
    }
    if ((trait & PictureTraits::kStart) != 0 && earliest == picture) {
      open.push_back(starts_.size());
      starts_.push_back({picture, kNever});
    }
    if ((trait & PictureTraits::kReset) != 0) {
      resets_.push_back(picture);
    }
    if ((trait & PictureTraits::kOpaque) != 0) {
      opaque_.push_back(picture);
    }
  }
}

std::int32_t Planner::reset_before(std::int32_t picture) const {
  const auto after = std::ranges::upper_bound(resets_, picture);
  return after == resets_.begin() ? 0 : *std::prev(after);
}

bool Planner::is_opaque(std::int32_t target) const {
  if (!has_graph_) {
    return true;
  }
  const auto first = std::ranges::lower_bound(opaque_, reset_before(target));
  return first != opaque_.end() && *first <= target;
}

std::int32_t Planner::start_for(std::int32_t no_later_than, std::int32_t last_target,
                                std::int64_t first_pts) const {
  const auto after = std::ranges::upper_bound(starts_, no_later_than, {}, &Start::picture);
  for (const Start& start : std::ranges::subrange(starts_.begin(), after) | std::views::reverse) {
    // A start that is shown after the target would be a leading picture's own anchor: many decoders
    // skip what they show before the picture that they started with.
    const std::int64_t start_pts = pts_[at(start.picture)];
    const bool shown_before = start_pts == kNoPts || first_pts == kNoPts || start_pts <= first_pts;
    if (start.blocked_from > last_target && shown_before) {
      return start.picture;
    }
  }
  return -1;
}

Segment Planner::plan_contiguous(std::span<const std::int32_t> targets) const {
  std::int32_t start = targets.front();
  for (const std::int32_t target : targets) {
    start = std::min(start, has_graph_ ? reset_before(target) : start_for(target, target, pts_[at(target)]));
  }
  Segment segment;
  segment.start = std::max(start, 0);
  segment.outcomes.assign(at(targets.back() - segment.start) + 1, Outcome::kReconstruct);
  segment.targets.assign(targets.begin(), targets.end());
  segment.contiguous = true;
  return segment;
}

Segment Planner::sparse_segment(std::int32_t start, std::vector<std::int32_t> targets,
                                const KeptPictures& kept) const {
  Segment segment;
  segment.start = start;
  segment.outcomes.resize(at(targets.back() - start) + 1);
  for (std::int32_t picture = start; picture <= targets.back(); ++picture) {
    const bool leave_out =
        (traits_[at(picture)] & PictureTraits::kDisposable) != 0 || graph_.earliest(picture) < start;
    segment.outcomes[at(picture - start)] = leave_out ? Outcome::kDrop : Outcome::kStateOnly;
  }
  for (const std::int32_t picture : graph_.closure(targets, kept)) {
    const bool is_header = (traits_[at(picture)] & PictureTraits::kShowsExisting) != 0;
    segment.outcomes[at(picture - start)] = kept.contains(picture) ? Outcome::kRestore
                                            : is_header            ? Outcome::kStateOnly
                                                                   : Outcome::kReconstruct;
  }
  segment.targets = std::move(targets);
  return segment;
}

std::vector<Segment> Planner::plan(std::span<const std::int32_t> targets, const KeptPictures& kept) const {
  struct Group {
    std::int32_t start = -1;
    std::int64_t first_pts = kNoPts;
    bool contiguous = false;
    std::vector<std::int32_t> targets;
  };
  // Two groups that pass over the same pictures become one, if some start suits both.
  const auto merge = [this](Group& group, const Group& next) {
    if (next.contiguous != group.contiguous || next.start > group.targets.back()) {
      return false;
    }
    const std::int32_t earlier = std::min(group.start, next.start);
    const std::int64_t first_pts = earlier_pts(group.first_pts, next.first_pts);
    const std::int32_t shared =
        group.contiguous ? earlier : start_for(earlier, next.targets.back(), first_pts);
    if (shared < 0) {
      return false;
    }
    group.start = shared;
    group.first_pts = first_pts;
    group.targets.insert(group.targets.end(), next.targets.begin(), next.targets.end());
    return true;
  };
  std::vector<Group> groups;
  for (const std::int32_t target : targets) {
    const std::int64_t pts = pts_[at(target)];
    Group group;
    group.first_pts = pts;
    group.targets = {target};
    if (!is_opaque(target)) {
      group.start = start_for(graph_.lowest(target), target, pts);
    }
    if (group.start < 0) {
      group.contiguous = true;
      group.start = plan_contiguous(group.targets).start;
    }
    groups.push_back(std::move(group));
    while (groups.size() > 1 && merge(groups[groups.size() - 2], groups.back())) {
      groups.pop_back();
    }
  }
  std::vector<Segment> segments;
  segments.reserve(groups.size());
  for (Group& group : groups) {
    segments.push_back(group.contiguous ? plan_contiguous(group.targets)
                                        : sparse_segment(group.start, std::move(group.targets), kept));
  }
  return segments;
}

}  // namespace sparsevideo
