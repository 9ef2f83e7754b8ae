// SPDX-License-Identifier: GPL-2.0-or-later
// Converts between Python and the encoder, and releases the GIL; decides nothing.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <string_view>
#include <utility>

#include "encoder/shard_writer.h"
#include "encoder/trial_encoder.h"
#include "error_class.h"
#include "gil.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sparsevideo {
namespace {

using Fraction = std::pair<int, int>;
using PtsArray = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using PlaneArray = nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu>;

AVCodecID codec_id(const std::string& name) {
  if (name == "hevc") {
    return AV_CODEC_ID_HEVC;
  }
  if (name == "h264") {
    return AV_CODEC_ID_H264;
  }
  throw nb::value_error(("codec is '" + name + "'; it must be 'hevc' or 'h264'").c_str());
}

std::vector<PictureType> picture_types(std::string_view letters) {
  constexpr std::string_view kLetters = "IiPBb";
  std::vector<PictureType> types;
  types.reserve(letters.size());
  for (const char letter : letters) {
    if (kLetters.find(letter) == std::string_view::npos) {
      throw nb::value_error(
          (std::string("a type is '") + letter + "'; it must be one of I, i, P, B, b").c_str());
    }
    types.push_back(static_cast<PictureType>(letter));
  }
  return types;
}

/// The planes of one frame, and what keeps their samples alive.
struct Picture {
  std::array<PlaneArray, 3> arrays;
  Planes planes;
};

Picture picture_of(nb::handle frame, const EncoderSettings& settings) {
  Picture picture;
  if (!nb::isinstance<nb::sequence>(frame) || nb::len(frame) != 3) {
    throw nb::type_error("a frame must be its planes (y, u, v)");
  }
  const std::uint8_t bits = settings.bit_depth > 8 ? 16 : 8;
  for (std::size_t i = 0; i < 3; ++i) {
    auto& plane = picture.arrays[i];
    plane = nb::cast<PlaneArray>(frame[i]);
    const int shift = i == 0 ? 0 : 1;
    const auto height = static_cast<std::size_t>(settings.height >> shift);
    const auto width = static_cast<std::size_t>(settings.width >> shift);
    if (plane.dtype() !=
            nb::dlpack::dtype{static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt), bits, 1} ||
        plane.shape(0) != height || plane.shape(1) != width || plane.stride(1) != 1) {
      const std::string wanted = "uint" + std::to_string(bits) + "[" + std::to_string(height) + ", " +
                                 std::to_string(width) + "] with contiguous rows";
      throw nb::value_error(("plane " + std::to_string(i) + " must be " + wanted).c_str());
    }
    // The encoders' interfaces take no const, but only read.
    picture.planes.data[i] = const_cast<std::uint8_t*>(static_cast<const std::uint8_t*>(plane.data()));
    picture.planes.stride_bytes[i] = static_cast<int>(plane.stride(0) * (bits / 8));
  }
  return picture;
}

nb::tuple trial_encode(const EncoderSettings& settings, const nb::iterable& frames,
                       const std::string& types) {
  TrialEncoder encoder(settings, picture_types(types));
  for (const nb::handle frame : frames) {
    const Picture picture = picture_of(frame, settings);
    const GilRelease release;
    encoder.add_frame(picture.planes);
  }
  Trial trial;
  {
    const GilRelease release;
    trial = encoder.finish();
  }
  const std::size_t count = trial.size_bytes.size();
  using Sizes = nb::ndarray<nb::numpy, const std::int64_t, nb::ndim<1>>;
  using Errors = nb::ndarray<nb::numpy, const double, nb::ndim<2>>;
  return nb::make_tuple(Sizes(trial.size_bytes.data(), {count}).cast(nb::rv_policy::copy),
                        Errors(trial.squared_error.data(), {count, 3}).cast(nb::rv_policy::copy));
}

std::int64_t encode_episode(ShardWriter& writer, const nb::iterable& frames, const PtsArray& pts,
                            const std::string& types, std::optional<std::int64_t> end_pts) {
  EpisodePlan plan{{pts.data(), pts.data() + pts.size()}, picture_types(types), 0};
  const std::size_t count = plan.pts.size();
  const std::int64_t last_step = count > 1 ? plan.pts[count - 1] - plan.pts[count - 2] : 1;
  plan.end_pts = end_pts.value_or(count > 0 ? plan.pts.back() + last_step : 0);
  {
    const GilRelease release;
    writer.begin_episode(std::move(plan));
  }
  for (const nb::handle frame : frames) {
    const Picture picture = picture_of(frame, writer.settings());
    const GilRelease release;
    writer.add_frame(picture.planes);
  }
  const GilRelease release;
  return writer.end_episode();
}

AVRational rational(const Fraction& value) { return {value.first, value.second}; }

}  // namespace
}  // namespace sparsevideo

NB_MODULE(_encoder, m) {  // NOLINT: nanobind's macro
  using namespace sparsevideo;
  nb::set_leak_warnings(false);  // as in _core
  register_errors();
  nb::class_<EncoderSettings>(m, "EncoderSettings")
      .def(
          "__init__",
          [](EncoderSettings* self, const std::string& codec, int width, int height, int bit_depth,
             const std::string& preset, const std::string& tune, std::optional<double> crf,
             std::optional<int> qp, bool reference_b, int num_threads, const Fraction& average_fps,
             int color_primaries, int color_trc, int color_space, int color_range, int chroma_location,
             const Fraction& sample_aspect_ratio) {
            const EncoderSettings settings{.codec = codec_id(codec),
                                           .width = width,
                                           .height = height,
                                           .bit_depth = bit_depth,
                                           .preset = preset,
                                           .tune = tune,
                                           .crf = crf,
                                           .qp = qp,
                                           .reference_b = reference_b,
                                           .num_threads = num_threads,
                                           .average_fps = rational(average_fps),
                                           .sample_aspect_ratio = rational(sample_aspect_ratio),
                                           .color_primaries = static_cast<AVColorPrimaries>(color_primaries),
                                           .color_trc = static_cast<AVColorTransferCharacteristic>(color_trc),
                                           .color_space = static_cast<AVColorSpace>(color_space),
                                           .color_range = static_cast<AVColorRange>(color_range),
                                           .chroma_location = static_cast<AVChromaLocation>(chroma_location)};
            check_settings(settings);
            new (self) EncoderSettings(settings);
          },
          nb::kw_only(), "codec"_a, "width"_a, "height"_a, "bit_depth"_a = 8, "preset"_a = "medium",
          "tune"_a = "psnr", "crf"_a = nb::none(), "qp"_a = nb::none(), "reference_b"_a = false,
          "num_threads"_a = 1, "average_fps"_a = Fraction(30, 1), "color_primaries"_a = 2, "color_trc"_a = 2,
          "color_space"_a = 2, "color_range"_a = 0, "chroma_location"_a = 0,
          "sample_aspect_ratio"_a = Fraction(0, 1));
  nb::class_<ShardWriter>(m, "ShardWriter")
      .def(
          "__init__",
          [](ShardWriter* self, const std::string& path, const EncoderSettings& settings,
             const Fraction& time_base, int rotation, bool fragmented) {
            const GilRelease release;
            new (self) ShardWriter(path, settings, rational(time_base), {rotation, fragmented});
          },
          "path"_a, "settings"_a, nb::kw_only(), "time_base"_a, "rotation"_a = 0, "fragmented"_a = false)
      .def("encode_episode", &encode_episode, "frames"_a, "pts"_a, "types"_a, nb::kw_only(),
           "end_pts"_a = nb::none(),
           nb::sig(
               "def encode_episode(self, "
               "frames: "
               "collections.abc.Iterable[collections.abc.Sequence[numpy.typing.NDArray[numpy.integer]]], "
               "pts: numpy.typing.NDArray[numpy.int64], types: str, *, end_pts: int | None = None) -> int"))
      .def("close", &ShardWriter::close, nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "encoder_version", [](const std::string& codec) { return encoder_version(codec_id(codec)); },
      "codec"_a);
  m.def(
      "trial_encode", &trial_encode, "settings"_a, "frames"_a, "types"_a,
      nb::sig(
          "def trial_encode(settings: EncoderSettings, "
          "frames: collections.abc.Iterable[collections.abc.Sequence[numpy.typing.NDArray[numpy.integer]]], "
          "types: str) -> "
          "tuple[numpy.typing.NDArray[numpy.int64], numpy.typing.NDArray[numpy.float64]]"));
}
