// SPDX-License-Identifier: Apache-2.0
// Segments that leave out too much, or whose headers are incomplete, show no wrong picture: the decoder
// notices, or what is missing makes no difference.
#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "clip_bytes.h"
#include "segment_decoder.h"
#include "shard.h"

using sparsevideo::DecodeStats;
using sparsevideo::MemorySource;
using sparsevideo::Outcome;
using sparsevideo::PacketRecord;
using sparsevideo::PictureRecord;
using sparsevideo::Segment;
using sparsevideo::SegmentDecoder;
using sparsevideo::StreamIndex;

namespace {

constexpr const char* kClipsWithGraph[] = {"pyramid.mp4", "slices.h264", "fields.mp4", "open.mkv",
                                           "stream.ts",   "hidden.mp4",  "units.mkv"};
constexpr int kRequestsOfAClip = 12;

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

Bytes samples_of(const AVFrame& frame) {
  Bytes samples;
  for (int plane = 0; plane < 3; ++plane) {
    const int shift = plane == 0 ? 0 : 1;  // all clips are 4:2:0 with 8 bits
    for (int y = 0; y < frame.height >> shift; ++y) {
      const std::uint8_t* row = frame.data[plane] + static_cast<std::ptrdiff_t>(y) * frame.linesize[plane];
      samples.insert(samples.end(), row, row + (frame.width >> shift));
    }
  }
  return samples;
}

struct Decoded {
  std::map<std::int32_t, Bytes> pictures;
  std::map<std::int32_t, std::string> failures;
  DecodeStats stats;
};

/// A clip, and each of its pictures as a decoder shows it that leaves nothing out.
class Scene {
 public:
  explicit Scene(const char* clip) : name(clip), source(clip_bytes(clip)), index(source) {
    CHECK(index.has_graph(), name, ": ", index.fallback_reason());
    Segment all;
    all.contiguous = true;
    all.outcomes.assign(index.pictures().size(), Outcome::kReconstruct);
    for (const auto& frame : index.frames()) {
      all.targets.push_back(frame.picture);
    }
    std::ranges::sort(all.targets);
    shown = all.targets;
    exact = decode(all).pictures;
    CHECK(exact.size() == index.frames().size(), name);
  }

  Decoded decode(const Segment& segment) { return decode(segment, source); }

  Decoded decode(const Segment& segment, sparsevideo::ByteSource& from) {
    Decoded decoded;
    const sparsevideo::Anchors no_anchors;
    SegmentDecoder decoder(from, index, no_anchors, decoded.stats,
                           {.on_frame =
                                [&](std::int32_t picture, const AVFrame& frame) {
                                  CHECK(decoded.pictures.emplace(picture, samples_of(frame)).second,
                                        "picture ", picture, " shown twice");
                                },
                            .on_failure =
                                [&](std::int32_t picture, const sparsevideo::Error& cause) {
                                  decoded.failures.emplace(picture, cause.what());
                                },
                            .poll = [] {},
                            .on_anchor = {}});
    decoder.decode(segment);
    return decoded;
  }

  /// Decodes a segment that was tampered with; all its targets must come out as they are.
  DecodeStats decode_exactly(const Segment& segment, const std::string& tampering) {
    const Decoded decoded = decode(segment);
    CHECK(decoded.failures.empty(), name, ", ", tampering, ": ", decoded.failures.begin()->second);
    CHECK(decoded.pictures.size() == segment.targets.size(), name, ", ", tampering);
    for (const auto& [picture, samples] : decoded.pictures) {
      CHECK(samples == exact.at(picture), name, ", ", tampering, ": picture ", picture,
            " of the segment from ", segment.start, " is wrong");
    }
    return decoded.stats;
  }

  /// Calls `use(segment)` for the segments of random requests.
  template <typename Use>
  void for_planned_segments(const Use& use) {
    std::mt19937 random(1);
    for (int request = 0; request < kRequestsOfAClip; ++request) {
      std::vector<std::int32_t> targets;
      for (const std::int32_t picture : shown) {
        if (random() % 8 == 0) {
          targets.push_back(picture);
        }
      }
      if (targets.empty()) {
        targets.push_back(shown[random() % shown.size()]);
      }
      for (const Segment& segment : index.planner().plan(targets)) {
        CHECK(!segment.contiguous, name);
        use(segment);
      }
    }
  }

  std::string name;
  MemorySource source;
  StreamIndex index;
  std::vector<std::int32_t> shown;
  std::map<std::int32_t, Bytes> exact;
};

/// Calls `use(scene)` for every clip that is decoded sparsely.
template <typename Use>
void for_scenes(const Use& use) {
  for (const char* clip : kClipsWithGraph) {
    Scene scene(clip);
    use(scene);
  }
}

/// Calls `use(picture)` for the pictures of a segment with this outcome.
template <typename Use>
void for_pictures(const Segment& segment, Outcome outcome, const Use& use) {
  for (std::int32_t picture = segment.start; picture < segment.stop(); ++picture) {
    if (segment.outcomes[at(picture - segment.start)] == outcome) {
      use(picture);
    }
  }
}

Segment with_outcome(Segment segment, std::int32_t picture, Outcome outcome) {
  segment.outcomes[at(picture - segment.start)] = outcome;
  return segment;
}

/// Lets a packet of the index have fewer header bytes as long as this lives.
class CutHeader {
 public:
  CutHeader(const StreamIndex& index, std::int32_t packet, std::uint32_t size)
      : record_(const_cast<PacketRecord&>(index.packets()[at(packet)])), size_(record_.state_size) {
    record_.state_size = size;
  }
  CutHeader(const CutHeader&) = delete;
  CutHeader& operator=(const CutHeader&) = delete;
  ~CutHeader() { record_.state_size = size_; }

 private:
  PacketRecord& record_;
  std::uint32_t size_;
};

TEST(segments_as_planned_are_exact_at_the_first_attempt) {
  for_scenes([](Scene& scene) {
    int state_only = 0;
    scene.for_planned_segments([&](const Segment& segment) {
      const DecodeStats stats = scene.decode_exactly(segment, "untouched");
      CHECK(stats.fallbacks == 0, scene.name);
      state_only += static_cast<int>(stats.state_only);
    });
    CHECK(state_only > 0 || scene.name == "stream.ts", scene.name,
          " leaves nothing for the tests below to work on");
  });
}

TEST(a_picture_of_the_closure_that_is_only_state_is_noticed) {
  for_scenes([](Scene& scene) {
    scene.for_planned_segments([&](const Segment& segment) {
      for_pictures(segment, Outcome::kReconstruct, [&](std::int32_t picture) {
        const std::string tampering = "state of picture " + std::to_string(picture) + " alone";
        const Segment tampered = with_outcome(segment, picture, Outcome::kStateOnly);
        CHECK(scene.decode_exactly(tampered, tampering).fallbacks > 0, scene.name, ", ", tampering);
      });
    });
  });
}

TEST(a_picture_of_the_closure_that_is_dropped_is_noticed) {
  for_scenes([](Scene& scene) {
    scene.for_planned_segments([&](const Segment& segment) {
      for_pictures(segment, Outcome::kReconstruct, [&](std::int32_t picture) {
        const std::string tampering = "picture " + std::to_string(picture) + " dropped";
        const Segment tampered = with_outcome(segment, picture, Outcome::kDrop);
        CHECK(scene.decode_exactly(tampered, tampering).fallbacks > 0, scene.name, ", ", tampering);
      });
    });
  });
}

TEST(a_dropped_header_is_noticed_or_makes_no_difference) {
  int noticed = 0;
  for_scenes([&](Scene& scene) {
    scene.for_planned_segments([&](const Segment& segment) {
      for_pictures(segment, Outcome::kStateOnly, [&](std::int32_t picture) {
        const std::string tampering = "state of picture " + std::to_string(picture) + " dropped";
        const Segment tampered = with_outcome(segment, picture, Outcome::kDrop);
        noticed += scene.decode_exactly(tampered, tampering).fallbacks > 0 ? 1 : 0;
      });
    });
  });
  CHECK(noticed > 0);
}

TEST(a_truncated_header_is_noticed_or_makes_no_difference) {
  int noticed = 0;
  for_scenes([&](Scene& scene) {
    scene.for_planned_segments([&](const Segment& segment) {
      for_pictures(segment, Outcome::kStateOnly, [&](std::int32_t picture) {
        const PictureRecord& record = scene.index.pictures()[at(picture)];
        const std::int32_t packet = record.first_packet + record.packet_count - 1;
        const std::uint32_t size = scene.index.packets()[at(packet)].state_size;
        for (const std::uint32_t left : {size - 1, size - 2, size - 4, size / 2, 4U, 0U}) {
          const CutHeader cut(scene.index, packet, std::min(left, size));
          const std::string tampering =
              "header of picture " + std::to_string(picture) + " cut to " + std::to_string(left) + " bytes";
          noticed += scene.decode_exactly(segment, tampering).fallbacks > 0 ? 1 : 0;
        }
      });
    });
  });
  CHECK(noticed > 0);
}

TEST(a_segment_that_starts_too_late_is_noticed_or_makes_no_difference) {
  for_scenes([](Scene& scene) {
    scene.for_planned_segments([&](const Segment& segment) {
      bool loses_closure = false;
      for (std::int32_t later = segment.start + 1; later <= segment.targets.front(); ++later) {
        Segment tampered = segment;
        const auto first = tampered.outcomes.begin();
        loses_closure |= first[later - segment.start - 1] == Outcome::kReconstruct;
        tampered.start = later;
        tampered.outcomes.erase(first, first + (later - segment.start));
        const std::string tampering = "started at " + std::to_string(later);
        const DecodeStats stats = scene.decode_exactly(tampered, tampering);
        CHECK(stats.fallbacks > 0 || !loses_closure, scene.name, ", ", tampering);
      }
    });
  });
}

TEST(bytes_that_changed_since_they_were_indexed_are_a_failure) {
  for_scenes([](Scene& scene) {
    if (!scene.index.packets_are_byte_ranges()) {
      return;
    }
    scene.for_planned_segments([&](const Segment& segment) {
      for_pictures(segment, Outcome::kReconstruct, [&](std::int32_t picture) {
        const PacketRecord& packet =
            scene.index.packets()[at(scene.index.pictures()[at(picture)].first_packet)];
        Bytes bytes = clip_bytes(scene.name);
        bytes.at(static_cast<std::size_t>(packet.position) + packet.size_bytes / 2) ^= 1;
        MemorySource changed(bytes);
        const Decoded decoded = scene.decode(segment, changed);
        CHECK(decoded.failures.contains(segment.targets.back()), scene.name, ", picture ", picture);
        CHECK(decoded.failures.size() + decoded.pictures.size() == segment.targets.size(), scene.name);
        for (const auto& [shown, samples] : decoded.pictures) {
          CHECK(samples == scene.exact.at(shown), scene.name, ", picture ", shown);
        }
      });
    });
  });
}

}  // namespace
