// SPDX-License-Identifier: Apache-2.0
// Properties of every plan, checked on random streams against what is worked out here the slow way.
#include <algorithm>
#include <numeric>
#include <set>
#include <stdexcept>

#include "check.h"
#include "plan.h"
#include "random_streams.h"

using sparsevideo::Outcome;
using sparsevideo::Planner;
using sparsevideo::Segment;

namespace {

constexpr unsigned kStreamsOfAKind = 600;

std::set<std::int32_t> closure_of(const Stream& stream, const Pictures& targets) {
  std::set<std::int32_t> closure;
  Pictures open = targets;
  while (!open.empty()) {
    const std::int32_t picture = open.back();
    open.pop_back();
    if (closure.insert(picture).second) {
      const Pictures& references = at(stream.references, picture);
      open.insert(open.end(), references.begin(), references.end());
    }
  }
  return closure;
}

/// The first picture that `picture` refers to or keeps, or itself.
std::int32_t earliest_of(const Stream& stream, std::int32_t picture) {
  std::int32_t earliest = picture;
  for (const Pictures& others : {at(stream.references, picture), at(stream.retained, picture)}) {
    for (const std::int32_t other : others) {
      earliest = std::min(earliest, other);
    }
  }
  return earliest;
}

std::int32_t reset_before(const Stream& stream, std::int32_t picture) {
  while (picture > 0 && !stream.has(picture, PictureTraits::kReset)) {
    --picture;
  }
  return picture;
}

bool is_opaque(const Stream& stream, std::int32_t target) {
  for (std::int32_t picture = reset_before(stream, target); picture <= target; ++picture) {
    if (!stream.has_graph || stream.has(picture, PictureTraits::kOpaque)) {
      return true;
    }
  }
  return false;
}

/// Whether one decoder started at `start` can bring out all targets.
bool suits(const Stream& stream, std::int32_t start, const Pictures& targets) {
  if (!stream.has(start, PictureTraits::kStart) || earliest_of(stream, start) != start ||
      *closure_of(stream, targets).begin() < start) {
    return false;
  }
  bool leading_skipped = false;
  for (std::int32_t picture = 0; picture <= targets.back(); ++picture) {
    leading_skipped = leading_skipped || stream.has(picture, PictureTraits::kLeadingSkipped);
    if (picture > start && earliest_of(stream, picture) < start &&
        !stream.has(picture, PictureTraits::kDisposable) && !leading_skipped) {
      return false;
    }
  }
  const std::int64_t start_pts = at(stream.pts, start);
  return std::ranges::all_of(targets, [&](std::int32_t target) {
    const std::int64_t pts = at(stream.pts, target);
    return start_pts == kNoPts || pts == kNoPts || start_pts <= pts;
  });
}

/// The latest start that suits the targets, or -1.
std::int32_t latest_start(const Stream& stream, const Pictures& targets) {
  std::int32_t start = targets.front();
  while (start >= 0 && !suits(stream, start, targets)) {
    --start;
  }
  return start;
}

void check_contiguous(const Stream& stream, const Segment& segment) {
  std::int32_t start = segment.targets.front();
  for (const std::int32_t target : segment.targets) {
    CHECK(is_opaque(stream, target) || latest_start(stream, {target}) < 0, "picture ", target);
    start = std::min(
        start, stream.has_graph ? reset_before(stream, target) : std::max(0, latest_start(stream, {target})));
  }
  CHECK(segment.start == start, segment.start, " instead of ", start);
  CHECK(std::ranges::count(segment.outcomes, Outcome::kReconstruct) == std::ssize(segment.outcomes));
}

void check_sparse(const Stream& stream, const Segment& segment) {
  for (const std::int32_t target : segment.targets) {
    CHECK(!is_opaque(stream, target), "picture ", target);
  }
  const std::int32_t start = latest_start(stream, segment.targets);
  CHECK(segment.start == start, segment.start, " instead of ", start);
  const std::set<std::int32_t> closure = closure_of(stream, segment.targets);
  for (std::int32_t picture = segment.start; picture < segment.stop(); ++picture) {
    const Outcome outcome = at(segment.outcomes, picture - segment.start);
    const bool is_header = stream.has(picture, PictureTraits::kShowsExisting);
    CHECK((outcome == Outcome::kReconstruct) == (closure.contains(picture) && !is_header), "picture ",
          picture);
    if (closure.contains(picture)) {
      CHECK(!is_header || outcome == Outcome::kStateOnly, "picture ", picture);
      for (const std::int32_t reference : at(stream.references, picture)) {
        CHECK(closure.contains(reference), "picture ", picture, " refers to ", reference);
      }
      continue;
    }
    const bool leaves_no_trace = stream.has(picture, PictureTraits::kDisposable);
    const bool reaches_back = earliest_of(stream, picture) < segment.start;
    CHECK((outcome == Outcome::kDrop) == (leaves_no_trace || reaches_back), "picture ", picture);
  }
  CHECK(*closure.begin() >= segment.start);
  CHECK(*closure.rbegin() < segment.stop());
}

Pictures united(const Pictures& some, const Pictures& others) {
  Pictures all;
  std::ranges::set_union(some, others, std::back_inserter(all));
  return all;
}

void check_plan(const Stream& stream, const Pictures& targets, const std::vector<Segment>& segments) {
  Pictures planned;
  for (const Segment& segment : segments) {
    planned.insert(planned.end(), segment.targets.begin(), segment.targets.end());
    CHECK(!segment.targets.empty());
    CHECK(segment.start >= 0 && segment.start <= segment.targets.front());
    CHECK(segment.stop() == segment.targets.back() + 1);
    segment.contiguous ? check_contiguous(stream, segment) : check_sparse(stream, segment);
  }
  CHECK(planned == targets);
  for (std::size_t i = 1; i < segments.size(); ++i) {
    const Segment& before = segments[i - 1];
    const Segment& after = segments[i];
    if (after.start < before.stop() && before.contiguous == after.contiguous) {
      CHECK(!before.contiguous);
      CHECK(latest_start(stream, united(before.targets, after.targets)) < 0, "segments ", i - 1, " and ", i);
    }
  }
}

/// Calls `check(stream, targets, plan)` for many random streams and targets.
template <typename Check>
void for_random_plans(Kind kind, const Check& check) {
  for (unsigned seed = 0; seed < kStreamsOfAKind; ++seed) {
    Random random(seed);
    const Stream stream = StreamMaker(kind, random).make();
    const Planner planner(stream.graph, stream.traits, stream.pts, stream.has_graph);
    Pictures all(static_cast<std::size_t>(stream.size()));
    std::iota(all.begin(), all.end(), 0);
    for (const int percent : {0, 5, 20, 100}) {
      const Pictures targets =
          percent == 0 ? Pictures{random.below(stream.size())} : random.some_of(all, percent, 1);
      try {
        check(stream, targets, planner.plan(targets));
      } catch (const std::exception& failure) {
        throw std::logic_error(std::string(failure.what()) + " Kind " +
                               std::to_string(static_cast<int>(kind)) + ", seed " + std::to_string(seed) +
                               ", " + std::to_string(percent) + " %");
      }
    }
  }
}

TEST(every_plan_of_closed_gops_is_complete_closed_minimal_and_starts_where_it_can) {
  for_random_plans(Kind::kClosedGops, check_plan);
}

TEST(every_plan_of_open_gops_with_leading_pictures_is_too) {
  for_random_plans(Kind::kOpenGopsH264, check_plan);
  for_random_plans(Kind::kOpenGopsHevc, check_plan);
}

TEST(every_plan_of_all_intra_streams_is_too) { for_random_plans(Kind::kAllIntra, check_plan); }

TEST(every_plan_around_opaque_islands_is_too_and_these_are_contiguous_from_their_reset) {
  for_random_plans(Kind::kOpaqueIslands, check_plan);
}

TEST(every_plan_without_a_graph_is_contiguous_from_the_latest_key_picture_shown_no_later) {
  for_random_plans(Kind::kNoGraph, check_plan);
}

TEST(every_plan_of_streams_that_no_encoder_makes_is_complete_closed_and_minimal_too) {
  for_random_plans(Kind::kAnything, check_plan);
}

TEST(gops_without_a_target_are_not_visited) {
  const auto check = [](const Stream& stream, const Pictures& targets, const std::vector<Segment>& segments) {
    std::set<std::int32_t> wanted;
    for (const std::int32_t target : targets) {
      wanted.insert(at(stream.gop, target));
    }
    for (const Segment& segment : segments) {
      for (std::int32_t picture = segment.start; picture < segment.stop(); ++picture) {
        CHECK(wanted.contains(at(stream.gop, picture)), "picture ", picture);
      }
    }
  };
  for_random_plans(Kind::kClosedGops, check);
  for_random_plans(Kind::kAllIntra, check);
}

TEST(what_trails_the_first_picture_of_an_open_gop_is_entered_there) {
  for_random_plans(Kind::kOpenGopsHevc,
                   [](const Stream& stream, const Pictures& targets, const std::vector<Segment>& segments) {
                     const std::int32_t target = targets.front();
                     if (targets.size() == 1 && !stream.leading[static_cast<std::size_t>(target)]) {
                       CHECK(segments.front().start == at(stream.gop, target), "target ", target);
                     }
                   });
}

TEST(pictures_of_an_all_intra_stream_are_decoded_alone) {
  for_random_plans(Kind::kAllIntra,
                   [](const Stream&, const Pictures& targets, const std::vector<Segment>& segments) {
                     CHECK(segments.size() == targets.size());
                     for (const Segment& segment : segments) {
                       CHECK(segment.outcomes == std::vector{Outcome::kReconstruct});
                     }
                   });
}

TEST(two_targets_far_apart_push_nothing_that_lies_between_them_through_the_decoder) {
  constexpr std::int32_t kGops = 1000;
  constexpr std::int32_t kLength = 10;
  ReferenceGraph graph;
  std::vector<std::uint8_t> traits;
  std::vector<std::int64_t> pts;
  for (std::int32_t picture = 0; picture < kGops * kLength; ++picture) {
    const bool begins = picture % kLength == 0;
    graph.add_picture(begins ? Pictures{} : Pictures{picture - 1}, {});
    traits.push_back(begins ? PictureTraits::kStart | PictureTraits::kReset : 0);
    pts.push_back(picture);
  }
  const std::vector<Segment> segments =
      Planner(graph, traits, pts, true).plan(Pictures{3, kGops * kLength - 2});
  CHECK(segments.size() == 2);
  CHECK(segments[0].start == 0 && segments[0].stop() == 4);
  CHECK(segments[1].start == (kGops - 1) * kLength && segments[1].stop() == kGops * kLength - 1);
}

TEST(a_header_that_shows_an_existing_picture_is_sent_but_not_reconstructed) {
  ReferenceGraph graph;
  const auto nothing = Pictures{};
  graph.add_picture(nothing, nothing);
  graph.add_picture(Pictures{0}, nothing);  // hidden
  graph.add_picture(Pictures{0, 1}, nothing);
  graph.add_picture(Pictures{1}, nothing);  // shows it
  const std::vector<std::uint8_t> traits = {
      PictureTraits::kStart | PictureTraits::kReset | PictureTraits::kDisposable, PictureTraits::kDisposable,
      PictureTraits::kDisposable, PictureTraits::kDisposable | PictureTraits::kShowsExisting};
  const std::vector<std::int64_t> pts = {0, kNoPts, 1, 2};
  const std::vector<Segment> segments = Planner(graph, traits, pts, true).plan(Pictures{3});
  CHECK(segments.size() == 1);
  const std::vector<Outcome> expected = {Outcome::kReconstruct, Outcome::kReconstruct, Outcome::kDrop,
                                         Outcome::kStateOnly};
  CHECK(segments[0].outcomes == expected);
}

TEST(a_plan_without_targets_is_empty) {
  const ReferenceGraph graph;
  const Planner planner(graph, {}, {}, true);
  CHECK(planner.plan({}).empty());
}

TEST(the_graph_agrees_with_a_search_through_the_references) {
  for (unsigned seed = 0; seed < kStreamsOfAKind; ++seed) {
    Random random(seed);
    const Stream stream = StreamMaker(kKinds[seed % std::size(kKinds)], random).make();
    CHECK(stream.graph.size() == stream.size());
    for (std::int32_t picture = 0; picture < stream.size(); ++picture) {
      const std::set<std::int32_t> closure = closure_of(stream, {picture});
      CHECK(stream.graph.lowest(picture) == *closure.begin(), "seed ", seed, ", picture ", picture);
      CHECK(stream.graph.earliest(picture) == earliest_of(stream, picture), "seed ", seed);
      CHECK(std::ranges::equal(stream.graph.closure(Pictures{picture}), closure), "seed ", seed);
      const Pictures& given = at(stream.references, picture);
      CHECK(std::ranges::equal(stream.graph.references(picture), std::set(given.begin(), given.end())));
    }
  }
}

TEST(a_closure_takes_targets_in_any_order_and_repeated) {
  ReferenceGraph graph;
  graph.add_picture({}, {});
  graph.add_picture(Pictures{0, 0}, {});
  graph.add_picture({}, Pictures{1});
  graph.add_picture(Pictures{2}, {});
  CHECK(graph.closure(Pictures{3, 1, 3}) == (Pictures{0, 1, 2, 3}));
  CHECK(graph.closure(Pictures{3}) == (Pictures{2, 3}));
  CHECK(graph.closure({}).empty());
  CHECK(graph.references(1).size() == 1);
}

TEST(a_reference_to_a_picture_that_is_not_earlier_throws_and_adds_nothing) {
  ReferenceGraph graph;
  graph.add_picture({}, {});
  for (const std::int32_t wrong : {-1, 1, 2, std::numeric_limits<std::int32_t>::max()}) {
    thrown_by<std::invalid_argument>([&] { graph.add_picture(Pictures{0, wrong}, {}); });
    thrown_by<std::invalid_argument>([&] { graph.add_picture({}, Pictures{wrong, 0}); });
  }
  CHECK(graph.size() == 1);
  CHECK(graph.all_references().empty());
  graph.add_picture(Pictures{0}, {});
  CHECK(graph.closure(Pictures{1}) == (Pictures{0, 1}));
}

}  // namespace
