// SPDX-License-Identifier: Apache-2.0
// Converts between Python and the core, and releases the GIL; decides nothing.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <ranges>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "anchor_cache.h"
#include "contents_bindings.h"
#include "error_class.h"
#include "gil.h"
#include "python_column.h"
#include "shard.h"
#include "thread_budget.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sparsevideo {
namespace {

/// A seekable binary Python file. Reads are serialised by a lock of its own, taken without the GIL.
class PythonFileSource final : public ByteSource {
 public:
  explicit PythonFileSource(nb::object file) : file_(std::move(file)) {
    file_.attr("seek")(0, SEEK_END);
    try {
      size_bytes_ = nb::cast<std::uint64_t>(file_.attr("tell")());
    } catch (const nb::cast_error&) {
      throw Error(ErrorKind::kRead, "tell() of the file object did not return a position");
    }
    count_open();
  }
  PythonFileSource(const PythonFileSource&) = delete;
  PythonFileSource& operator=(const PythonFileSource&) = delete;
  ~PythonFileSource() override {
    const GilAcquire gil;
    file_.reset();
  }
  [[nodiscard]] std::uint64_t size_bytes() const override { return size_bytes_; }

 private:
  std::size_t read_some(std::uint64_t offset, std::span<std::uint8_t> out) override {
    const std::lock_guard lock(mutex_);
    const GilAcquire gil;
    try {
      file_.attr("seek")(offset);
      const auto bytes = nb::cast<nb::bytes>(file_.attr("read")(out.size()));
      const std::size_t count = std::min(bytes.size(), out.size());
      std::memcpy(out.data(), bytes.c_str(), count);
      return count;
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_Exception)) {
        throw;  // KeyboardInterrupt and the like are for the caller
      }
      throw Error(ErrorKind::kRead, error.what());
    } catch (const nb::cast_error&) {
      throw Error(ErrorKind::kRead, "read() of the file object did not return bytes");
    }
  }

  nb::object file_;
  std::uint64_t size_bytes_ = 0;
  std::mutex mutex_;
};

std::unique_ptr<ByteSource> make_source(const nb::object& source) {
  if (nb::isinstance<nb::str>(source)) {
    const auto path = nb::cast<std::string>(source);
    const GilRelease release;
    return std::make_unique<FileSource>(path);
  }
  if (nb::isinstance<nb::bytes>(source)) {
    const auto bytes = nb::cast<nb::bytes>(source);
    const auto* data = static_cast<const std::uint8_t*>(bytes.data());
    return std::make_unique<MemorySource>(std::vector<std::uint8_t>(data, data + bytes.size()));
  }
  return std::make_unique<PythonFileSource>(source);
}

std::shared_ptr<Shard> open_shard(const nb::object& source, const std::string& name,
                                  const IndexContents* contents) {
  try {
    auto bytes = make_source(source);
    const GilRelease release;
    return contents == nullptr ? std::make_shared<Shard>(std::move(bytes))
                               : std::make_shared<Shard>(std::move(bytes), *contents);
  } catch (const Error& error) {
    throw Error(error.kind(), name.empty() ? error.what() : name + ": " + error.what());
  }
}

using Int64Array = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ByteArray = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::span<const std::int64_t> view(const Int64Array& array) { return {array.data(), array.size()}; }

/// The index of a shard, and what keeps it alive.
class IndexView {
 public:
  explicit IndexView(std::shared_ptr<Shard> shard) : shard_(std::move(shard)) {}
  const StreamIndex& operator*() const { return shard_->index(); }
  const StreamIndex* operator->() const { return &shard_->index(); }

 private:
  std::shared_ptr<Shard> shard_;
};

/// Lets Ctrl-C end a long decode: Python handles its signals when it is asked to, in the main thread.
class SignalPoll {
 public:
  void operator()() {
    constexpr auto kInterval = std::chrono::milliseconds(50);
    const auto now = std::chrono::steady_clock::now();
    auto last = last_.load();
    if (now - last < kInterval || !last_.compare_exchange_strong(last, now)) {
      return;
    }
    const GilAcquire gil;
    if (PyErr_CheckSignals() != 0) {
      throw nb::python_error();
    }
  }

 private:
  std::atomic<std::chrono::steady_clock::time_point> last_ = std::chrono::steady_clock::now();
};

std::pair<int, int> fraction(AVRational value) { return {value.num, value.den}; }

DecodeResult decode(Shard& shard, const Int64Array& frames, const ByteArray& out, const Int64Array& offsets,
                    int height, int width, PixelMode mode, bool apply_rotation, int num_threads) {
  if (offsets.size() != frames.size()) {
    throw nb::value_error("offsets must have one entry a frame");
  }
  if ((height == 0) != (width == 0) || height < 0 || width < 0) {
    throw nb::value_error("height and width must both be positive, or both 0");
  }
  const auto& records = shard.index().frames();
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const auto frame = static_cast<std::size_t>(frames.data()[i]);
    if (frame >= records.size()) {
      continue;  // Shard::decode says which
    }
    const FrameSize size{height > 0 ? height : records[frame].height,
                         width > 0 ? width : records[frame].width};
    const std::size_t bytes = frame_bytes(size, mode);
    const auto offset = static_cast<std::size_t>(offsets.data()[i]);
    if (offset > out.size() || bytes > out.size() - offset) {
      throw nb::value_error("out is too small for the frames at their offsets");
    }
  }
  const Output output{out.data(), view(offsets), {height, width}, apply_rotation, mode};
  SignalPoll poll;
  const GilRelease release;
  return shard.decode(view(frames), output, num_threads, [&poll] { poll(); });
}

/// A column with one value a coded picture, computed from its packets.
template <typename Value>
Column<std::int64_t> picture_column(const StreamIndex& index, Value value) {
  return make_column<std::int64_t>(index.pictures(), [&](const PictureRecord& picture) {
    return value(index.packets().subspan(static_cast<std::size_t>(picture.first_packet),
                                         static_cast<std::size_t>(picture.packet_count)));
  });
}

std::int64_t total_bytes(std::span<const PacketRecord> packets) {
  std::int64_t bytes = 0;
  for (const PacketRecord& packet : packets) {
    bytes += packet.size_bytes;
  }
  return bytes;
}

std::string pix_fmt_name(const StreamIndex& index) {
  const char* name = av_get_pix_fmt_name(static_cast<AVPixelFormat>(index.parameters().format));
  return name == nullptr ? "" : name;
}

void bind_index(const nb::module_& m) {
  using View = const IndexView&;
  using Packets = std::span<const PacketRecord>;
  nb::class_<IndexView> type(m, "StreamIndex");
  type.def_prop_ro("codec", [](View i) { return std::string(avcodec_get_name(i->parameters().codec_id)); })
      .def_prop_ro("pix_fmt", [](View i) { return pix_fmt_name(*i); })
      .def_prop_ro("width", [](View i) { return i->parameters().width; })
      .def_prop_ro("height", [](View i) { return i->parameters().height; })
      .def_prop_ro("rotation", [](View i) { return i->rotation_degrees(); })
      .def_prop_ro("num_frames", [](View i) { return i->frames().size(); })
      .def_prop_ro("num_pictures", [](View i) { return i->pictures().size(); })
      .def_prop_ro("nbytes", [](View i) { return i->size_bytes(); })
      .def_prop_ro("time_base", [](View i) { return fraction(i->time_base()); })
      .def_prop_ro("average_fps", [](View i) { return fraction(i->average_fps()); })
      .def_prop_ro("has_graph", [](View i) { return i->has_graph(); })
      .def_prop_ro("fallback_reason", [](View i) { return i->fallback_reason(); });
  define_column(type, "frame_pts",
                [](View i) { return make_column<std::int64_t>(i->frames(), &FrameRecord::pts); });
  define_column(type, "frame_duration",
                [](View i) { return make_column<std::int64_t>(i->frames(), &FrameRecord::duration); });
  define_column(type, "frame_picture",
                [](View i) { return make_column<std::int32_t>(i->frames(), &FrameRecord::picture); });
  define_column(type, "frame_width",
                [](View i) { return make_column<std::int32_t>(i->frames(), &FrameRecord::width); });
  define_column(type, "frame_height",
                [](View i) { return make_column<std::int32_t>(i->frames(), &FrameRecord::height); });
  define_column(type, "picture_pts",
                [](View i) { return make_column<std::int64_t>(i->picture_pts(), std::identity{}); });
  define_column(type, "picture_dts", [](View i) {
    return picture_column(*i, [](Packets packets) { return packets.front().dts; });
  });
  define_column(type, "picture_position", [](View i) {
    return picture_column(*i, [](Packets packets) { return packets.front().position; });
  });
  define_column(type, "picture_size", [](View i) { return picture_column(*i, total_bytes); });
  define_column(type, "picture_flags",
                [](View i) { return make_column<std::uint8_t>(i->traits(), std::identity{}); });
  define_column(type, "reference_offsets",
                [](View i) { return make_column<std::int64_t>(i->graph().offsets(), std::identity{}); });
  define_column(type, "references", [](View i) {
    return make_column<std::int32_t>(i->graph().all_references(), std::identity{});
  });
}

void bind_plan(const nb::module_& m) {
  nb::class_<DecodeStats>(m, "DecodeStats")
      .def(nb::init<>())
      .def_ro("requested", &DecodeStats::requested)
      .def_ro("unique", &DecodeStats::unique)
      .def_ro("reconstructed", &DecodeStats::reconstructed)
      .def_ro("state_only", &DecodeStats::state_only)
      .def_ro("dropped", &DecodeStats::dropped)
      .def_ro("restored", &DecodeStats::restored)
      .def_ro("segments", &DecodeStats::segments)
      .def_ro("bytes_read", &DecodeStats::bytes_read)
      .def_ro("fallbacks", &DecodeStats::fallbacks);
  nb::class_<Segment> segment_type(m, "PlanSegment");
  segment_type.def_ro("start", &Segment::start)
      .def_prop_ro("stop", &Segment::stop)
      .def_ro("contiguous", &Segment::contiguous);
  define_column(segment_type, "outcomes", [](const Segment& segment) {
    return make_column<std::uint8_t>(segment.outcomes,
                                     [](Outcome outcome) { return static_cast<int>(outcome); });
  });
  define_column(segment_type, "targets", [](const Segment& segment) {
    return make_column<std::int32_t>(segment.targets, std::identity{});
  });
  nb::class_<DecodePlan> plan_type(m, "Plan");
  plan_type.def_ro("stats", &DecodePlan::stats).def_ro("segments", &DecodePlan::segments);
  define_column(plan_type, "closure", [](const DecodePlan& plan) {
    return make_column<std::int32_t>(plan.reconstructed(), std::identity{});
  });
  nb::class_<DecodeResult>(m, "DecodeResult")
      .def_ro("stats", &DecodeResult::stats)
      .def_prop_ro(
          "errors",
          [](const DecodeResult& result) {
            std::vector<std::tuple<std::size_t, nb::object, std::string>> errors;
            errors.reserve(result.failures.size());
            for (const FrameFailure& failure : result.failures) {
              errors.emplace_back(failure.request, error_class(failure.cause.kind()), failure.cause.what());
            }
            return errors;
          },
          nb::for_getter(nb::sig(
              "def errors(self) -> list[tuple[int, type[daft_sparsevideo.errors.SparseVideoError], str]]")));
}

void bind_shard(const nb::module_& m) {
  nb::enum_<PixelMode>(m, "PixelMode").value("RGB", PixelMode::kRgb).value("L", PixelMode::kGrey);
  nb::class_<Shard>(m, "Shard")
      .def(nb::new_(&open_shard), "source"_a, nb::kw_only(), "name"_a = "", "contents"_a.none() = nb::none())
      .def_prop_ro("index", [](const std::shared_ptr<Shard>& shard) { return IndexView(shard); })
      .def_prop_ro("reads", [](Shard& shard) { return shard.source().reads(); })
      .def_prop_ro("bytes_read", [](Shard& shard) { return shard.source().bytes_read(); })
      .def_prop_ro("opens", [](Shard& shard) { return shard.source().opens(); })
      .def("contents",
           [](Shard& shard) {
             const GilRelease release;
             return shard.index().contents(shard.source());
           })
      .def("close", [](Shard& shard) { shard.source().close(); })
      .def(
          "plan", [](const Shard& shard, const Int64Array& frames) { return shard.plan(view(frames)); },
          "frames"_a)
      .def("decode", &decode, "frames"_a, "out"_a, "offsets"_a, nb::kw_only(), "height"_a = 0, "width"_a = 0,
           "mode"_a = PixelMode::kRgb, "apply_rotation"_a = false, "num_threads"_a = 0)
      .def(
          "explain",
          [](const Shard& shard, const Int64Array& frames) {
            const auto costs = [&] {
              const nb::gil_scoped_release release;
              return shard.explain(view(frames));
            }();
            return std::tuple(make_column<std::int64_t>(costs, &FrameCost::pictures),
                              make_column<std::int64_t>(costs, &FrameCost::bytes),
                              make_column<std::int64_t>(costs, &FrameCost::added),
                              make_column<std::int32_t>(costs, &FrameCost::segment),
                              make_column<std::uint8_t>(costs, &FrameCost::sparse));
          },
          "frames"_a);
}

}  // namespace
}  // namespace sparsevideo

NB_MODULE(_core, m) {  // NOLINT: nanobind's macro
  using namespace sparsevideo;
  nb::set_leak_warnings(false);  // a query that the end of the interpreter cuts short leaves objects behind
  register_errors();
  bind_index(m);
  bind_contents(m);
  bind_plan(m);
  bind_shard(m);
  m.def("set_thread_budget", &set_thread_budget, "threads"_a);
  m.def("thread_budget", &thread_budget);
  m.def("set_anchor_cache", [](std::size_t bytes) { anchor_cache().set_capacity(bytes); }, "max_bytes"_a);
  m.def("anchor_cache_capacity", [] { return anchor_cache().capacity_bytes(); });
  m.def("anchor_cache_nbytes", [] { return anchor_cache().size_bytes(); });
  m.attr("INDEX_VERSION") = kIndexVersion;
  m.def("ffmpeg_version", [] { return av_version_info(); });
}
