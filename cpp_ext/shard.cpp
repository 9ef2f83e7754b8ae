// SPDX-License-Identifier: Apache-2.0
#include "shard.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

#include "anchor_cache.h"
#include "segment_decoder.h"
#include "thread_budget.h"

namespace sparsevideo {

namespace {

/// Writes the frames of one request to their places, from any thread.
class FrameWriter {
 public:
  FrameWriter(const StreamIndex& index, std::span<const std::int64_t> frames, const Output& output)
      : index_(index), frames_(frames), output_(output) {
    for (std::size_t request = 0; request < frames.size(); ++request) {
      requests_[index.frames()[static_cast<std::size_t>(frames[request])].picture].push_back(request);
    }
    for (const auto& [picture, requests] : requests_) {
      targets_.push_back(picture);
    }
  }

  /// The pictures that were asked for, each once, ascending.
  [[nodiscard]] std::span<const std::int32_t> targets() const { return targets_; }

  void write(std::int32_t picture, const AVFrame& frame, RgbConverter& converter) const {
    const auto& requests = requests_.at(picture);
    const int quarter_turns = output_.apply_rotation ? index_.rotation_degrees() / 90 : 0;
    FrameSize size = output_.size;
    if (size == FrameSize{}) {
      check_size(picture, frame);
      size = quarter_turns % 2 == 0 ? FrameSize{frame.height, frame.width}
                                    : FrameSize{frame.width, frame.height};
    }
    std::uint8_t* first = place(requests.front());
    converter.convert(frame, size, quarter_turns, first);
    const std::size_t bytes = frame_bytes(size, output_.mode);
    for (const std::size_t request : std::span(requests).subspan(1)) {
      std::memcpy(place(request), first, bytes);
    }
  }

  void write_failure(std::int32_t picture, const Error& cause, DecodeResult& result) const {
    for (const std::size_t request : requests_.at(picture)) {
      std::memset(place(request), 0, size_bytes(picture));
      result.failures.push_back({request, cause});
    }
  }

 private:
  [[nodiscard]] std::uint8_t* place(std::size_t request) const {
    return output_.data + output_.offsets[request];
  }

  [[nodiscard]] FrameSize indexed_size(std::int32_t picture) const {
    const auto frame = static_cast<std::size_t>(frames_[requests_.at(picture).front()]);
    return {index_.frames()[frame].height, index_.frames()[frame].width};
  }

  [[nodiscard]] std::size_t size_bytes(std::int32_t picture) const {
    return frame_bytes(output_.size == FrameSize{} ? indexed_size(picture) : output_.size, output_.mode);
  }

  // The place of a frame is as large as its index says, and an index file may say anything.
  void check_size(std::int32_t picture, const AVFrame& frame) const {
    if (const FrameSize indexed = indexed_size(picture); indexed != FrameSize{frame.height, frame.width}) {
      throw Error(ErrorKind::kRead, "the picture is of " + std::to_string(frame.width) + "x" +
                                        std::to_string(frame.height) + " pixels, but was indexed as " +
                                        std::to_string(indexed.width) + "x" + std::to_string(indexed.height));
    }
  }

  const StreamIndex& index_;
  std::span<const std::int64_t> frames_;
  const Output& output_;
  std::map<std::int32_t, std::vector<std::size_t>> requests_;  // by picture
  std::vector<std::int32_t> targets_;
};

void add(DecodeStats& total, const DecodeStats& part) {
  total.reconstructed += part.reconstructed;
  total.state_only += part.state_only;
  total.dropped += part.dropped;
  total.restored += part.restored;
  total.bytes_read += part.bytes_read;
  total.fallbacks += part.fallbacks;
}

KeptPictures pictures_of(const Anchors& anchors) {
  KeptPictures pictures;
  for (const auto& [picture, anchor] : anchors) {
    pictures.insert(pictures.end(), picture);
  }
  return pictures;
}

bool is_restored(std::span<const Segment> segments, std::int32_t picture) {
  return std::ranges::any_of(segments, [picture](const Segment& segment) {
    return picture >= segment.start && picture < segment.stop() &&
           segment.outcomes[static_cast<std::size_t>(picture - segment.start)] == Outcome::kRestore;
  });
}

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

/// What one thread needs to decode segments.
class Worker {
 public:
  Worker(ByteSource& source, const StreamIndex& index, const Anchors& anchors, const FrameWriter& writer,
         PixelMode mode, DecodeResult& result, std::mutex& mutex, const std::function<void()>& poll,
         const std::function<void(std::int32_t, const AVFrame&)>& on_anchor)
      : writer_(writer),
        result_(result),
        mutex_(mutex),
        converter_(mode),
        decoder_(source, index, anchors, stats_,
                 {.on_frame = [this](std::int32_t picture,
                                     const AVFrame& frame) { writer_.write(picture, frame, converter_); },
                  .on_failure =
                      [this](std::int32_t picture, const Error& cause) {
                        const std::lock_guard lock(mutex_);
                        writer_.write_failure(picture, cause, result_);
                      },
                  .poll = poll,
                  .on_anchor = on_anchor}) {}

  void decode(const Segment& segment) {
    stats_ = {};
    decoder_.decode(segment);
    const std::lock_guard lock(mutex_);
    add(result_.stats, stats_);
  }

 private:
  const FrameWriter& writer_;
  DecodeResult& result_;
  std::mutex& mutex_;
  DecodeStats stats_;
  RgbConverter converter_;
  SegmentDecoder decoder_;
};

}  // namespace

Shard::Shard(std::unique_ptr<ByteSource> source)
    : source_(std::move(source)), index_(*source_), id_(next_id()) {}

Shard::Shard(std::unique_ptr<ByteSource> source, const IndexContents& contents)
    : source_(std::move(source)), index_(contents, *source_), id_(next_id()) {}

std::vector<std::int32_t> DecodePlan::reconstructed() const {
  std::vector<std::int32_t> pictures;
  for (const Segment& segment : segments) {
    for (std::int32_t picture = segment.start; picture < segment.stop(); ++picture) {
      if (segment.outcomes[static_cast<std::size_t>(picture - segment.start)] >= Outcome::kReconstruct) {
        pictures.push_back(picture);
      }
    }
  }
  std::ranges::sort(pictures);
  const auto repeated = std::ranges::unique(pictures);
  pictures.erase(repeated.begin(), repeated.end());
  return pictures;
}

Shard::~Shard() { anchor_cache().forget(id_); }

void Shard::check_frames(std::span<const std::int64_t> frames) const {
  const auto count = static_cast<std::int64_t>(index_.frames().size());
  for (const std::int64_t frame : frames) {
    if (frame < 0 || frame >= count) {
      throw Error(ErrorKind::kOutOfRange,
                  "frame " + std::to_string(frame) + " is outside [0, " + std::to_string(count) + ")");
    }
  }
}

DecodePlan Shard::plan(std::span<const std::int64_t> frames) const {
  return plan(frames, pictures_of(anchor_cache().anchors_of(id_)));
}

DecodePlan Shard::plan(std::span<const std::int64_t> frames, const KeptPictures& kept) const {
  check_frames(frames);
  const FrameWriter writer(index_, frames, {});
  DecodePlan plan;
  plan.segments = index_.planner().plan(writer.targets(), kept);
  plan.stats.requested = static_cast<std::int64_t>(frames.size());
  plan.stats.unique = static_cast<std::int64_t>(writer.targets().size());
  plan.stats.segments = static_cast<std::int64_t>(plan.segments.size());
  for (const Segment& segment : plan.segments) {
    for (std::int32_t picture = segment.start; picture < segment.stop(); ++picture) {
      switch (segment.outcomes[static_cast<std::size_t>(picture - segment.start)]) {
        case Outcome::kDrop:
          ++plan.stats.dropped;
          break;
        case Outcome::kStateOnly:
          ++plan.stats.state_only;
          break;
        case Outcome::kRestore:
          ++plan.stats.restored;
          break;
        case Outcome::kReconstruct: {
          ++plan.stats.reconstructed;
          const PictureRecord& record = index_.pictures()[static_cast<std::size_t>(picture)];
          for (const PacketRecord& packet :
               index_.packets().subspan(static_cast<std::size_t>(record.first_packet),
                                        static_cast<std::size_t>(record.packet_count))) {
            plan.stats.bytes_read += packet.size_bytes;
          }
          break;
        }
      }
    }
  }
  return plan;
}

std::vector<FrameCost> Shard::explain(std::span<const std::int64_t> frames) const {
  std::unordered_map<std::int32_t, FrameCost> costs;  // by picture
  for (const Segment& segment : plan(frames, {}).segments) {
    for (const std::int32_t picture : segment.targets) {
      costs[picture] = {0, 0, 0, segment.start, !segment.contiguous};
    }
  }
  std::vector<FrameCost> explained;
  explained.reserve(frames.size());
  std::vector<bool> needed(index_.pictures().size());  // by the frames so far
  for (const std::int64_t& frame : frames) {
    FrameCost& cost = costs.at(index_.frames()[static_cast<std::size_t>(frame)].picture);
    cost.added = 0;
    if (cost.pictures == 0) {
      const DecodePlan alone = plan({&frame, 1}, {});
      cost.pictures = alone.stats.reconstructed;
      cost.bytes = alone.stats.bytes_read;
      for (const std::int32_t picture : alone.reconstructed()) {
        cost.added += needed[static_cast<std::size_t>(picture)] ? 0 : 1;
        needed[static_cast<std::size_t>(picture)] = true;
      }
    }
    explained.push_back(cost);
  }
  return explained;
}

DecodeResult Shard::decode(std::span<const std::int64_t> frames, const Output& output, int max_threads,
                           const std::function<void()>& poll) {
  check_frames(frames);
  const FrameWriter writer(index_, frames, output);
  AnchorCache& cache = anchor_cache();
  Anchors anchors = cache.anchors_of(id_);
  const std::vector<Segment> segments = index_.planner().plan(writer.targets(), pictures_of(anchors));
  std::erase_if(anchors, [&](const auto& anchor) { return !is_restored(segments, anchor.first); });
  std::function<void(std::int32_t, const AVFrame&)> on_anchor;
  if (cache.capacity_bytes() > 0) {
    on_anchor = [&cache, this](std::int32_t picture, const AVFrame& frame) {
      cache.keep(id_, picture, frame);
    };
  }
  DecodeResult result;
  result.stats.requested = static_cast<std::int64_t>(frames.size());
  result.stats.unique = static_cast<std::int64_t>(writer.targets().size());
  result.stats.segments = static_cast<std::int64_t>(segments.size());
  std::mutex mutex;
  run_tasks(segments.size(), max_threads > 0 ? max_threads : thread_budget(), [&]() -> TaskRunner {
    const auto worker = std::make_shared<Worker>(*source_, index_, anchors, writer, output.mode, result,
                                                 mutex, poll, on_anchor);
    return [worker, &segments](std::size_t task) { worker->decode(segments[task]); };
  });
  std::ranges::sort(result.failures, {}, &FrameFailure::request);
  return result;
}

}  // namespace sparsevideo
